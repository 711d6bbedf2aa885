// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "addons/fleet/keys.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/output.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

/// Writes a new file. Errors: invalid_argument (the file exists), io.
Result<void> write_new(const std::string& path, mode_t mode, const std::string& text) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file && errno == EEXIST) {
    return make_error(
        ErrorCode::invalid_argument,
        "{} exists, and a key is never overwritten: what it signed would be lost; name "
        "another file, or remove it",
        path);
  }
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0) {
    Error error = make_error(ErrorCode::io, "cannot write {}: {}", path, errno_text(errno));
    if (file) {
      ::unlink(path.c_str());  // a partial key is useless, and would block the next attempt
    }
    return error;
  }
  return {};
}

class KeygenCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "keygen",
        "-o FILE",
        "make a key pair that signs kernels",
        "Writes a secret key to FILE (mode 0600) and its public key to FILE.pub. The secret key "
        "signs kernels that your machines will run: keep it on the hosts that build. Hosts that "
        "trust the public key use what they publish.",
        {{"cukiln keygen -o fleet-1.key", "writes fleet-1.key and fleet-1.key.pub"},
         {"cukiln keygen -o ci.key --name build-2026", "gives the key another name"},
         {"cukiln keygen -o ci.key --expires 2027-01-31 --modules nvfp4_",
          "limits it, in ci.key.pub: hosts take from it modules whose names begin with nvfp4_, "
          "until "
          "that day"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("-o,--output", output_, "write the secret key to this file")->type_name("FILE");
    app.add_option("--name", name_, "the key's name (default: FILE without its suffix)")
        ->type_name("NAME");
    app.add_option("--expires", expires_, "trust the key until this day begins, in UTC")
        ->type_name("YYYY-MM-DD");
    app.add_option("--modules", modules_,
                   "trust it only for modules whose names begin with this; repeatable")
        ->type_name("PREFIX")
        ->allow_extra_args(false);
  }

  Exit run(Context& context) override {
    if (output_.empty()) {
      return context.usage("a file is missing: cukiln keygen -o FILE");
    }
    if (auto there = check_output(output_); !there) {
      return context.fail(exit_of_output(there.error()), there.error());
    }
    const std::string name = name_.empty() ? std::filesystem::path(output_).stem().string() : name_;
    const auto key = SecretKey::generate(name);
    if (!key) {
      return context.fail(Exit::usage, key.error());
    }
    std::string words = expires_.empty() ? std::string() : "expires=" + expires_;
    for (const std::string& prefix : modules_) {
      words += " modules=" + prefix;
    }
    const auto limits = KeyLimits::parse(words);
    if (!limits) {
      return context.fail(Exit::usage, limits.error());
    }
    const std::string limits_text = limits->text();
    const std::string public_text = key->public_key().text();
    const std::string line = public_text + (limits_text.empty() ? "" : " " + limits_text);
    const std::string public_path = output_ + ".pub";
    for (const auto& [path, mode, text] : {std::tuple(output_, mode_t{0600}, key->text()),
                                           std::tuple(public_path, mode_t{0644}, line)}) {
      if (auto written = write_new(path, mode, text + "\n"); !written) {
        if (path != output_) {
          ::unlink(output_.c_str());  // leave no half of a pair
        }
        const bool usage = written.error().code() == ErrorCode::invalid_argument;
        return context.fail(usage ? Exit::usage : Exit::environment, written.error());
      }
    }
    if (context.json()) {
      context.print_json(Json{{"name", name},
                              {"secret", output_},
                              {"public", public_path},
                              {"public_key", public_text},
                              {"expires", expires_},
                              {"modules", modules_}});
    } else {
      context.print(line + "\n");
      context.note(
          fmt::format("Wrote the secret key {} and the public key {}.", output_, public_path));
    }
    if (!limits->hold_at(now_s())) {
      context.messages().warn(
          fmt::format("the key has expired: {} has begun, so nothing that it signs is trusted",
                      date_text(*limits->expires_s)));
    }
    return Exit::done;
  }

 private:
  std::string output_;
  std::string name_;
  std::string expires_;
  std::vector<std::string> modules_;
};

}  // namespace

std::unique_ptr<Command> make_keygen() { return std::make_unique<KeygenCommand>(); }

}  // namespace cukiln::cli
