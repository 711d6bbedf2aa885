// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cli/application.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "cli/output.hpp"
#include "cli/recorded_manifest.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

constexpr const char* kVariable = "CUKILN_RECORD";

class RecordCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "record",
        "-o MANIFEST -- COMMAND...",
        "write the manifest of an application",
        "Runs COMMAND and writes a manifest of the modules that it and its child processes "
        "requested from cukiln, for 'cukiln preload' before the next start. The application must "
        "read its settings from the environment: a C++ host calls Settings::load(), the C "
        "interface and Python do so by default.",
        {{"cukiln record -o kernels.json -- python serve.py", "then: cukiln preload kernels.json"},
         {"cukiln record -o all.json -- ./engine --warm-up --exit", "a run that ends by itself"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("COMMAND", command_);
    app.add_option("-o,--output", output_, "write the manifest to this file")
        ->type_name("MANIFEST");
  }

  Exit run(Context& context) override {
    if (output_.empty() || command_.empty()) {
      return context.usage("{} is missing: cukiln record -o MANIFEST -- COMMAND...",
                           output_.empty() ? "a manifest's file" : "a command");
    }
    if (auto there = check_output(output_); !there) {
      return context.fail(exit_of_output(there.error()), there.error());
    }
    const auto record = ReportFile::make(output_ + ".recording-");
    if (!record) {
      return context.fail(Exit::usage, record.error());
    }
    const auto ended = run_application(command_, {{kVariable, record->path()}}, context.json());
    if (!ended) {
      return context.fail(Exit::usage, ended.error());
    }
    RecordedManifest manifest(output_);
    if (auto written = write(*record, manifest); !written) {
      return context.fail(Exit::failed, written.error());
    }
    if (manifest.skipped() != 0) {
      context.messages().warn(fmt::format(
          "{} mixed files with texts in memory, which a manifest cannot express, and {} left out",
          counted(manifest.skipped(), "module", "modules"),
          manifest.skipped() == 1 ? "was" : "were"));
    }
    if (manifest.modules() == 0) {
      context.messages().warn(
          "no module was requested; does the application call Settings::load()?");
    }
    if (*ended != 0) {
      context.messages().warn(fmt::format(
          "the application ended with {}; {} has its requests until then", *ended, output_));
    }
    if (context.json()) {
      context.print_json(
          Json{{"manifest", output_}, {"modules", manifest.modules()}, {"exit_code", *ended}});
    } else {
      context.note(fmt::format("Wrote {} to {}.", counted(manifest.modules(), "module", "modules"),
                               output_));
    }
    return *ended == 0 ? Exit::done : Exit::failed;
  }

 private:
  static Result<void> write(const ReportFile& record, RecordedManifest& manifest) {
    CUKILN_CHECK(record.for_each_line(
        [&manifest](std::string_view line) { return manifest.add(std::string(line)); }));
    return manifest.write();
  }

  std::vector<std::string> command_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> make_record() { return std::make_unique<RecordCommand>(); }

}  // namespace cukiln::cli
