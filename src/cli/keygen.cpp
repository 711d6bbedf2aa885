// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/file.hpp"
#include "base/result.hpp"
#include "cli/command.hpp"
#include "remote/keys.hpp"

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
         {"cukiln keygen -o ci.key --name build-2026", "gives the key another name"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("-o,--output", output_, "write the secret key to this file")->type_name("FILE");
    app.add_option("--name", name_, "the key's name (default: FILE without its suffix)")
        ->type_name("NAME");
  }

  Exit run(Context& context) override {
    if (output_.empty()) {
      return context.usage("a file is missing: cukiln keygen -o FILE");
    }
    const std::string name = name_.empty() ? std::filesystem::path(output_).stem().string() : name_;
    const auto key = SecretKey::generate(name);
    if (!key) {
      return context.fail(Exit::usage, key.error());
    }
    const std::string public_text = key->public_key().text();
    const std::string public_path = output_ + ".pub";
    for (const auto& [path, mode, text] : {std::tuple(output_, mode_t{0600}, key->text()),
                                           std::tuple(public_path, mode_t{0644}, public_text)}) {
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
                              {"public_key", public_text}});
    } else {
      context.print(public_text + "\n");
      context.note(
          fmt::format("Wrote the secret key {} and the public key {}.", output_, public_path));
    }
    return Exit::done;
  }

 private:
  std::string output_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Command> make_keygen() { return std::make_unique<KeygenCommand>(); }

}  // namespace cukiln::cli
