// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/export_sources.hpp"

#include <algorithm>

#include <fmt/ranges.h>

#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/source_tree.hpp"
#include "core/key/compile_request.hpp"
#include "core/loader/loader_services.hpp"
#include "core/loader/module_request.hpp"

namespace cukiln::cli {

namespace {

bool has_line_table(const StoreEntry& entry) {
  const auto fields = RequestFields::parse(entry.request_canonical);
  return fields && std::any_of(fields->options.arguments.begin(), fields->options.arguments.end(),
                               [](const std::string& flag) {
                                 return flag == "-lineinfo" || flag == "--generate-line-info" ||
                                        flag == "-G" || flag == "--device-debug";
                               });
}

void print_laid(Context& context, const SourceTree& tree, std::size_t entries,
                const std::string& folder) {
  const std::vector<SourceTree::Missing>& missing = tree.missing();
  if (context.json()) {
    Json list = Json::array();
    for (const SourceTree::Missing& one : missing) {
      list.push_back({{"module", one.module}, {"path", one.path}, {"reason", one.reason}});
    }
    context.print_json(Json{{"sources", folder},
                            {"entries", entries},
                            {"files", tree.files()},
                            {"missing", std::move(list)}});
    return;
  }
  for (const SourceTree::Missing& one : missing) {
    context.messages().warn(
        fmt::format("{}: {} is not there: {}", one.module, one.path, one.reason));
  }
  context.print(
      fmt::format("{} of {} below {}{}\n", counted(tree.files(), "file", "files"),
                  counted(entries, "entry", "entries"), folder,
                  missing.empty() ? std::string() : fmt::format(", {} missing", missing.size())));
  context.note(
      fmt::format("cuda-gdb: set substitute-path /cukiln {0}/cukiln\n"
                  "ncu: --import-source yes --source-folders {0}\n",
                  absolute_path(folder)));
}

}  // namespace

Exit export_sources(Context& context, StoreAdmin& admin, const std::vector<CacheKey>& entries,
                    const std::string& folder, const std::vector<std::string>& search) {
  const auto loader = context.loader();
  if (!loader) {
    return context.fail(exit_of(loader.error()), loader.error());
  }
  SourceTree tree(folder, search);
  LoaderServices services(**loader);
  std::vector<std::string> without_lines;
  for (const CacheKey& key : entries) {
    const auto entry = whole_entry(admin, key);
    const auto added =
        entry ? tree.add(*entry,
                         services.compiler(Target::parse(entry->labels.target).value_or(Target()))
                             .toolkit_folders())
              : Result<void>(entry.error());
    if (!added) {
      return context.fail(exit_of(added.error()), added.error());
    }
    if (!has_line_table(*entry)) {
      without_lines.push_back(fmt::format("{} ({})", entry->labels.name, short_key(key)));
    }
  }
  if (!without_lines.empty()) {
    context.messages().warn(fmt::format(
        "compiled without -lineinfo and -G, so there are no line tables that name these files: {}",
        fmt::join(without_lines, ", ")));
  }
  print_laid(context, tree, entries.size(), folder);
  return tree.missing().empty() ? Exit::done : Exit::failed;
}

}  // namespace cukiln::cli
