// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/key/output_kind.hpp"

namespace cukiln::wire {

/// Raise it whenever a message below changes. Owner and worker must have the same.
inline constexpr std::uint32_t kWorkerProtocol = 13;

/// Descriptors of a compile worker: its end of the socket pair, and a pidfd of its owner, with
/// which it ends.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerOwner = 4;

/// What a worker can write to its stderr, a memory file. No other file of its grows beyond it.
inline constexpr std::uint64_t kWorkerLogBytes = 64 << 10;

/// The messages between a compile worker and its owner. The owner sends requests and the worker
/// replies, except that the worker asks for files while it compiles.
///
///   worker: hello                       once, after NVRTC, or nvJitLink, was opened
///   owner:  probe      → probed         the library's version, NVRTC's targets, and whether its
///                                       accesses are observed
///   owner:  lock       → locked         with a descriptor that has the lock of a compile
///   owner:  compile    → (ask → answer)* → result; the body of ask is the virtual path
///   owner:  link       → result         only of a worker that was started to link
///   owner:  release    → released       releases the lock
///   worker: crashed                     from a signal handler, instead of any reply
enum class WorkerOp : std::uint16_t {
  hello = 1,
  probe,
  probed,
  lock,
  locked,
  compile,
  ask,
  answer,
  result,
  release,
  released,
  crashed,
  link,
};

struct Hello {
  std::uint32_t protocol = kWorkerProtocol;
  std::uint32_t nvrtc_major = 0;  ///< of a worker that links nvJitLink's version
  std::uint32_t nvrtc_minor = 0;
  std::string error;            ///< why NVRTC cannot be used; empty if it can
  std::uint32_t landlock = 0;   ///< the version of Landlock that restricts the worker; 0: none
  bool filters_calls = false;   ///< seccomp restricts the worker
  bool hides_memory = false;    ///< the worker is not dumpable: no process of its user traces it
  std::uint32_t max_tasks = 0;  ///< threads that the worker may have; 0: no limit of its own

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.protocol, self.nvrtc_major, self.nvrtc_minor, self.error, self.landlock,
                    self.filters_calls, self.hides_memory, self.max_tasks);
  }

  std::string encode() const;
  static std::optional<Hello> decode(ByteView body);
};

struct Probed {
  std::string version;    ///< `13.0.88`; empty if the probe did not compile
  bool observed = false;  ///< the worker observed NVRTC's file accesses
  std::string error;      ///< NVRTC's log if the probe did not compile
  /// The compute capabilities of NVRTC's targets: 75, 80, …; none if it cannot list them.
  std::vector<std::uint32_t> capabilities;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.version, self.observed, self.error, self.capabilities);
  }

  std::string encode() const;
  static std::optional<Probed> decode(ByteView body);
};

struct Compile {
  std::string unit_path;  ///< virtual
  std::string unit_text;
  std::vector<std::string> arguments;
  std::vector<std::string> name_expressions;
  bool real_clock = false;  ///< do not fix the clocks: the result will not be stored
  /// A program of NVRTC's own interface (NvrtcProgram): what it returns, its folder, its headers by
  /// name.
  bool is_program = false;
  OutputKind output = OutputKind::cubin;
  std::string working_folder;
  std::vector<std::pair<std::string, std::string>> headers;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.unit_path, self.unit_text, self.arguments, self.name_expressions,
                    self.real_clock, self.is_program, self.output, self.working_folder,
                    self.headers);
  }

  std::string encode() const;
  static std::optional<Compile> decode(ByteView body);
};

/// An image to link. Its first bytes tell what it is.
struct LinkInput {
  std::string name;  ///< for messages; virtual
  SharedBytes image;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.name, self.image);
  }
};

struct Link {
  std::vector<std::string> options;  ///< of nvJitLink
  std::vector<LinkInput> inputs;

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.options, self.inputs);
  }

  std::string encode() const;
  static std::optional<Link> decode(ByteView body);
};

enum class FileKind : std::uint8_t { absent, file, folder, error };
constexpr FileKind last_of(FileKind /*type*/) noexcept { return FileKind::error; }

/// What is at a path.
struct Answer {
  std::string path;
  FileKind kind = FileKind::absent;
  /// File or folder: a number that the answering process assigns, from 1; the same for two paths to
  /// one file. Stands for device and inode, which must not reach NVRTC.
  std::uint32_t file = 0;
  std::string absent_folder;  ///< absent: a folder above the path that is absent too; may be empty
  SharedBytes bytes;          ///< file

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.path, self.kind, self.file, self.absent_folder, self.bytes);
  }
};

/// The answer to a question, followed by answers sent ahead for questions that will probably be
/// next: each question costs two context switches, which take long when all cores are busy.
struct Answers {
  std::vector<Answer> answers;  ///< the first is for the path asked for

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.answers);
  }

  std::string encode() const;
  static std::optional<Answers> decode(ByteView body);
};

enum class CompileStatus : std::uint8_t { ok, failed, out_of_memory, unusable };
constexpr CompileStatus last_of(CompileStatus /*type*/) noexcept { return CompileStatus::unusable; }

/// The result of a compile, or of a link.
struct Compiled {
  CompileStatus status = CompileStatus::failed;
  std::int32_t nvrtc_code = 0;  ///< of a link nvJitLink's
  std::string nvrtc_text;       ///< nvrtcGetErrorString
  std::int64_t compile_us = 0;
  std::uint64_t peak_bytes = 0;  ///< resident memory of the worker at most; 0: not known
  bool uses_time = false;  ///< the program spells a date macro: it was compiled with real clocks
  std::string log;
  std::string image;
  std::string ptx;                     ///< of a program that is compiled to a cubin
  std::vector<std::string> lowered;    ///< one for each name expression, in their order
  std::vector<std::string> looked_at;  ///< every path that NVRTC accessed, in order of first access

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.status, self.nvrtc_code, self.nvrtc_text, self.compile_us, self.peak_bytes,
                    self.uses_time, self.log, self.image, self.ptx, self.lowered, self.looked_at);
  }

  std::string encode() const;
  static std::optional<Compiled> decode(ByteView body);
};

struct Crashed {
  std::uint32_t signal = 0;         ///< 0: none
  std::uint8_t out_of_memory = 0;   ///< 1 if an allocation had failed before
  std::uint8_t stack_overflow = 0;  ///< 1 if the fault was at the compile thread's guard page
  std::uint8_t out_of_threads = 0;  ///< 1 if NVRTC could not create a thread; then no signal

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.signal, self.out_of_memory, self.stack_overflow, self.out_of_threads);
  }

  std::string encode() const;
  static std::optional<Crashed> decode(ByteView body);
};

}  // namespace cukiln::wire
