// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "cli/command.hpp"
#include "cli/disassembly.hpp"
#include "cli/entries.hpp"
#include "cli/entry_page.hpp"
#include "cli/html_page.hpp"
#include "cli/human.hpp"
#include "cli/output.hpp"
#include "cli/ptx.hpp"
#include "cli/source_tree.hpp"
#include "cli/table.hpp"
#include "cli/text.hpp"
#include "core/base/file.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/loader/make_entry.hpp"

namespace cukiln::cli {

namespace {

constexpr std::string_view kTacticsKind = "cukiln.tactics";  // the launchers' (kernels_src/nvfp4)

/// The tactics in a blob, in words: first the names of the columns, which its second line has. None
/// if it is of another kind or form.
using Words = std::vector<std::string>;
std::vector<Words> tactics_of(const StoreBlob& blob) {
  std::vector<Words> lines;
  std::istringstream text(blob.kind == kTacticsKind ? std::string(blob.bytes) : std::string());
  std::string line;
  std::getline(text, line);  // the format
  while (std::getline(text, line)) {
    std::istringstream words(line);
    Words of_line{std::istream_iterator<std::string>(words), {}};
    if (!lines.empty() && of_line.size() != lines.front().size()) {
      return {};
    }
    lines.push_back(std::move(of_line));
  }
  return lines;
}

Json tactics_json(const std::vector<Words>& lines) {
  Json rows = Json::array();
  for (std::size_t i = 1; i < lines.size(); ++i) {
    Json row = Json::object();
    for (std::size_t column = 0; column < lines[i].size(); ++column) {
      const Json number = Json::parse(lines[i][column], nullptr, false);
      row[lines.front()[column]] = number.is_number_integer() ? number : Json(lines[i][column]);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string tactics_text(const std::vector<Words>& lines, const Terminal& terminal) {
  std::vector<Column> columns;
  for (const std::string& name : lines.front()) {
    columns.push_back({name, name == "kernel" ? Column::Align::left : Column::Align::right});
  }
  Table table(std::move(columns));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    table.add({lines[i].begin(), lines[i].end()});
  }
  return table.text(terminal);
}

class ShowCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "show",
        "KEY|NAME",
        "show everything about one entry",
        "Shows the inputs of an entry field by field, the headers that it read with their digests, "
        "its kernels, the compiler's log and its history. A KEY is a prefix of a key that 'cukiln "
        "ls' shows, of at least 6 digits. A NAME is a module's; --arch chooses among its entries. "
        "--source, --ptx, --sass and --cubin print that alone; --html writes a page with all of "
        "it, which loads nothing: source lines beside their PTX and SASS if the module was "
        "compiled with -lineinfo, and occupancy by block size. Of a blob, by a prefix of its id, "
        "shows what 'cukiln ls --blobs' lists, and of the kind cukiln.tactics its rows.",
        {{"cukiln show 3fa9c01d", "the whole entry"},
         {"cukiln show amax --arch sm_90a", "an entry by its module's name"},
         {"cukiln show 3fa9c01d --source", "the source as it was compiled"},
         {"cukiln show 3fa9c01d --sass | less", "the machine code, from nvdisasm"},
         {"cukiln show 3fa9c01d --cubin -o amax.cubin", "writes the cubin to a file"},
         {"cukiln show 3fa9c01d --html -I include -o amax.html", "a page for a browser"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("KEY", keys_);
    filter_.add_to(app);
    app.add_flag("--source", source_, "print the source as it was compiled");
    app.add_flag("--ptx", ptx_,
                 "compile the source again, to PTX for the virtual architecture; of a link each "
                 "source by itself");
    app.add_flag("--sass", sass_, "print the machine code as text; needs nvdisasm or cuobjdump");
    app.add_flag("--cubin", cubin_, "print the cubin's bytes");
    app.add_flag("--html", html_, "write a page for a browser: all of the above");
    app.add_option("-I,--include-path", include_,
                   "a folder of headers that the module was compiled with, for --ptx and --html; "
                   "repeatable")
        ->type_name("DIR")
        ->allow_extra_args(false);
    app.add_option("-o,--output", output_, "write to this file instead of stdout")->type_name("F");
  }

  Exit run(Context& context) override {
    const int forms = int{source_} + int{ptx_} + int{sass_} + int{cubin_} + int{html_};
    if (keys_.size() != 1) {
      return context.usage("{}: cukiln show KEY|NAME",
                           keys_.empty() ? "a key or name is missing" : "one key at a time");
    }
    if (forms > 1) {
      return context.usage("--source, --ptx, --sass, --cubin and --html exclude each other");
    }
    if (!output_.empty() && forms == 0) {
      return context.usage("-o needs --source, --ptx, --sass, --cubin or --html");
    }
    if (!include_.empty() && !ptx_ && !html_) {
      return context.usage("-I needs --ptx or --html");
    }
    if ((cubin_ || html_) && output_.empty() && (context.json() || context.out().is_terminal())) {
      return context.usage("--{} does not print to {}: name a file with -o F", form_name(),
                           context.json() ? "JSON" : "a terminal");
    }
    if (auto usable = filter_.apply({}); !usable) {
      return context.fail(Exit::usage, usable.error());
    }
    if (auto there = output_.empty() ? Result<void>() : check_output(output_); !there) {
      return context.fail(exit_of_output(there.error()), there.error());
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    StoreAdmin admin(**store);
    auto entries = admin.list();
    if (!entries) {
      return context.fail(Exit::store, entries.error());
    }
    const auto key = choose(*entries);
    if (!key && forms == 0) {
      const auto blob = blob_of(admin);
      if (blob && *blob) {
        return show_blob(context, admin, **blob);
      }
    }
    if (!key) {
      return context.fail(exit_of_key_error(key.error()), key.error());
    }
    auto entry = admin.peek(*key);
    if (!entry) {
      return context.fail(entry.error().code() == ErrorCode::corrupt ? Exit::failed : Exit::store,
                          entry.error());
    }
    if (!*entry) {
      return context.fail(Exit::failed, make_error(ErrorCode::not_found,
                                                   "entry {} was removed meanwhile", key->hex()));
    }
    const auto summary = std::find_if(entries->begin(), entries->end(),
                                      [&](const EntrySummary& e) { return e.key == *key; });
    return forms == 0 ? show_page(context, *summary, **entry)
                      : show_form(context, admin, *summary, **entry);
  }

 private:
  Result<CacheKey> choose(const std::vector<EntrySummary>& entries) const {
    const std::string& text = keys_.front();
    CUKILN_TRY(const auto matches, find_entries(entries, text));
    CUKILN_TRY(auto selected, filter_.apply(matches));
    // The sources of a linked module have its name, and the name means what was linked.
    if (std::any_of(selected.begin(), selected.end(),
                    [](const auto& one) { return !is_part(one); })) {
      selected.erase(std::remove_if(selected.begin(), selected.end(), is_part), selected.end());
    }
    if (selected.size() == 1) {
      return selected.front().key;
    }
    std::string list;
    for (const EntrySummary& entry : selected.empty() ? matches : selected) {
      list +=
          fmt::format("\n  {}  {} for {}, stored {}, {}", short_key(entry.key), entry.labels.name,
                      entry.labels.target, human_time(entry.created_s), entry.labels.flags);
    }
    return make_error(ErrorCode::invalid_argument, "{} of the {} entries of \"{}\"{}{}",
                      selected.empty() ? "none" : "several", matches.size(), text,
                      selected.empty()     ? " has that target and name:"
                      : filter_.has_arch() ? " match: give a key"
                                           : " match: give a key, or --arch",
                      list);
  }

  Result<std::optional<BlobSummary>> blob_of(StoreAdmin& admin) const {
    CUKILN_TRY(const auto blobs, admin.list_blobs());
    return find_blob(blobs, keys_.front());
  }

  static Exit show_blob(Context& context, StoreAdmin& admin, const BlobSummary& blob) {
    auto bytes = blob.kind == kTacticsKind ? admin.peek(blob.id) : std::optional<StoreBlob>();
    if (!bytes) {
      return context.fail(bytes.error().code() == ErrorCode::corrupt ? Exit::failed : Exit::store,
                          bytes.error());
    }
    const std::vector<Words> tactics = *bytes ? tactics_of(**bytes) : std::vector<Words>();
    if (context.json()) {
      Json shown = blob_json(blob);
      if (!tactics.empty()) {
        shown["tactics"] = tactics_json(tactics);
      }
      context.print_json(shown);
      return Exit::done;
    }
    Table table({{""}, {""}});
    const auto row = [&](const char* name, std::string value) {
      table.add({{name, Color::dim}, std::move(value)});
    };
    row("blob", blob.id.hex());
    row("kind", blob.kind);
    row("key", key_text(blob));
    row("size", human_bytes(blob.size_bytes));
    row("created", human_time(blob.created_s));
    row("last used", human_time(blob.last_used_s));
    row("hits", human_count(static_cast<std::uint64_t>(blob.hits)));
    for (const auto& [label, signer] : signer_rows(blob.signer)) {
      row(label, signer);
    }
    context.print(table.text(context.out()));
    if (!tactics.empty()) {
      context.print("\n" + tactics_text(tactics, context.out()));
    }
    return Exit::done;
  }

  static Exit show_page(Context& context, const EntrySummary& summary, const StoreEntry& entry) {
    auto page = EntryPage::make(summary, entry);
    if (!page) {
      return context.fail(Exit::failed, page.error());
    }
    if (context.json()) {
      context.print_json(page->json());
    } else {
      context.print(page->text(context.out()));
    }
    return Exit::done;
  }

  Exit show_form(Context& context, StoreAdmin& admin, const EntrySummary& summary,
                 const StoreEntry& entry) {
    auto form = cubin_  ? Result<std::string>(std::string(entry.cubin.image.view()))
                : sass_ ? disassemble(entry.cubin.image, context.settings().loader)
                : html_ ? html(context, admin, summary, entry)
                        : text_form(context, admin, entry);
    if (!form) {
      const ErrorCode code = form.error().code();
      const bool is_missing = code == ErrorCode::not_found || code == ErrorCode::incompatible;
      return context.fail(is_missing ? Exit::environment : Exit::failed, form.error());
    }
    if (!output_.empty()) {
      if (auto written = write_output(output_, *form); !written) {
        return context.fail(Exit::failed, written.error());
      }
      context.messages().info(fmt::format("wrote {} bytes to {}", form->size(), output_));
      if (context.json()) {
        context.print_json(
            Json{{"key", entry.key.hex()}, {"output", output_}, {"size_bytes", form->size()}});
      }
    } else if (context.json()) {
      context.print_json(Json{{"key", entry.key.hex()}, {form_name(), *form}});
    } else {
      // Exact bytes for a file or a program; a terminal gets no control characters.
      context.print(context.out().is_terminal() ? printable_lines(*form) : *form);
    }
    return Exit::done;
  }

  Result<std::string> text_form(Context& context, StoreAdmin& admin,
                                const StoreEntry& entry) const {
    CUKILN_TRY(std::string source, admin.source_text(entry.key));
    if (source_) {
      return source;
    }
    CUKILN_TRY(KernelLoader * loader, context.loader());
    return compile_to_ptx(*loader, entry, source, find_headers(entry, include_));
  }

  /// What cannot be had here (a source's text, PTX, SASS) is an error in the page.
  Result<std::string> html(Context& context, StoreAdmin& admin, const EntrySummary& summary,
                           const StoreEntry& entry) const {
    CUKILN_TRY(const EntryPage page, EntryPage::make(summary, entry));
    CUKILN_TRY(const RequestFields fields, RequestFields::parse(entry.request_canonical));
    EntryCode code{{}, text_form(context, admin, entry), std::string()};
    if (!code.ptx) {
      context.messages().warn("the page is without PTX: " + code.ptx.error().message());
    }
    const std::string joined = admin.source_text(entry.key).value_or(std::string());
    const std::vector<ByteView> texts = source_texts_in(joined, fields.sources);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const RequestFields::Source& source = fields.sources[i];
      auto text = hash_of(texts[i]) == source.digest
                      ? Result<std::string>(std::string(texts[i]))
                      : make_error(ErrorCode::not_found,
                                   "the store has this entry without the text of {}; the file that "
                                   "was compiled has the digest {}",
                                   source.path, source.digest.hex());
      code.sources.push_back({source.path, std::move(text)});
    }
    for (const VirtualSource& header : find_headers(entry, include_)) {
      code.sources.push_back({header.path, std::string(header.text.view())});
    }
    code.sass = fields.output() == OutputKind::cubin
                    ? disassemble(entry.cubin.image, context.settings().loader, true)
                    : make_error(ErrorCode::incompatible, "this entry is {}, which has no SASS",
                                 name_of(fields.output()));
    return html_page(page.json(), fields.target, entry.cubin.image, code);
  }

  const char* form_name() const {
    return source_ ? "source_text" : ptx_ ? "ptx" : cubin_ ? "cubin" : html_ ? "html" : "sass";
  }

  EntryFilter filter_;
  std::vector<std::string> keys_;
  std::string output_;
  bool source_ = false;
  bool ptx_ = false;
  bool sass_ = false;
  bool cubin_ = false;
  bool html_ = false;
  std::vector<std::string> include_;
};

}  // namespace

std::unique_ptr<Command> make_show() { return std::make_unique<ShowCommand>(); }

}  // namespace cukiln::cli
