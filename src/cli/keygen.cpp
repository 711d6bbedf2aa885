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

/// A new file; a key that is there is never written over.
Result<void> write_new(const std::string& path, mode_t mode, const std::string& text) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file && errno == EEXIST) {
    return make_error(ErrorCode::invalid_argument,
                      "{} is there already, and a key is never written over: what it signed would "
                      "be lost; name another file, or remove it",
                      path);
  }
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0) {
    Error error = make_error(ErrorCode::io, "cannot write {}: {}", path, errno_text(errno));
    if (file) {
      ::unlink(path.c_str());  // a part of a key is none, and would be in the way of the next try
    }
    return error;
  }
  return {};
}

class KeygenCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {"keygen",
            "-o FILE",
            "make a pair of keys to sign kernels with",
            "Writes a secret key to FILE (mode 0600: whoever has it can sign kernels that your "
            "machines will run) and the public one to FILE.pub. A host with the secret key may "
            "publish; hosts that trust the public one use what it published.",
            {{"cukiln keygen -o fleet-1.key", "fleet-1.key and fleet-1.key.pub"},
             {"cukiln keygen -o ci.key --name build-2026", "with a name of its own"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("-o,--output", output_, "the secret key's file")->type_name("FILE");
    app.add_option("--name", name_, "the key's name (default: FILE's, without its ending)")
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
          ::unlink(output_.c_str());  // half a pair
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
      context.note(fmt::format("Wrote {}, which is secret, and {}, which is for everybody.",
                               output_, public_path));
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
