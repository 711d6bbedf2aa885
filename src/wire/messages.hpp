// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace cukiln::wire {

/// Raised whenever a message below changes; both ends must have the same.
inline constexpr std::uint32_t kWorkerProtocol = 3;

/// Descriptors of a compile worker: its end of the socket pair, and the process whose end is its
/// end.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerOwner = 4;

/// What owner and worker say to each other. The owner asks and the worker answers, but for FILE
/// questions, which the worker asks while it compiles.
///
///   worker: hello                       once, after NVRTC was opened
///   owner:  probe      → probed         what version, and does observing work
///   owner:  lock       → locked | busy  the flight's lock
///   owner:  compile    → (ask → answer)* → result; the body of ask is the virtual path
///   owner:  release    → released       gives the lock up
///   worker: crashed                     from a signal handler, instead of any answer
enum class WorkerOp : std::uint16_t {
  hello = 1,
  probe,
  probed,
  lock,
  locked,
  busy,
  compile,
  ask,
  answer,
  result,
  release,
  released,
  crashed,
};

struct Hello {
  std::uint32_t protocol = kWorkerProtocol;
  std::uint32_t nvrtc_major = 0;
  std::uint32_t nvrtc_minor = 0;
  std::string error;  ///< why NVRTC cannot be used; empty: it can

  std::string encode() const;
  static std::optional<Hello> decode(ByteView body);
};

struct Probed {
  std::string version;    ///< `13.0.88`; empty: the probe did not compile
  bool observed = false;  ///< NVRTC's reads came to the worker
  std::string error;      ///< NVRTC's log when it did not compile

  std::string encode() const;
  static std::optional<Probed> decode(ByteView body);
};

struct Lock {
  std::string path;
  std::string owner_line;  ///< written into the file while it is held

  std::string encode() const;
  static std::optional<Lock> decode(ByteView body);
};

struct Locked {
  std::string error;  ///< why there is no lock (a file system without locks); empty: it is held

  std::string encode() const;
  static std::optional<Locked> decode(ByteView body);
};

struct Busy {
  std::string owner_line;  ///< as the holder wrote it; empty: not written yet

  std::string encode() const;
  static std::optional<Busy> decode(ByteView body);
};

struct Compile {
  std::string unit_path;  ///< virtual
  std::string unit_text;
  std::vector<std::string> arguments;
  std::vector<std::string> name_expressions;
  bool real_clock = false;  ///< NVRTC sees the time, whatever is compiled: nothing will be stored

  std::string encode() const;
  static std::optional<Compile> decode(ByteView body);
};

enum class FileKind : std::uint8_t { absent, file, folder, error };

/// What is at a path.
struct Answer {
  std::string path;
  FileKind kind = FileKind::absent;
  /// File or folder: a number of the one who answers, from 1. Two paths to one file have the same;
  /// of the file system's own numbers none leaves the machine.
  std::uint32_t file = 0;
  std::string absent_folder;  ///< absent: a folder above it that is absent too, with all below it
  SharedBytes bytes;          ///< file
};

/// The answer to a question, and to some that are likely to come: a question costs two switches
/// between processes, which is long where every core is busy.
struct Answers {
  std::vector<Answer> answers;  ///< the one that was asked for first

  std::string encode() const;
  static std::optional<Answers> decode(ByteView body);
};

enum class CompileStatus : std::uint8_t { ok, failed, out_of_memory, unusable };

struct Compiled {
  CompileStatus status = CompileStatus::failed;
  std::int32_t nvrtc_code = 0;
  std::string nvrtc_text;  ///< nvrtcGetErrorString
  std::int64_t compile_us = 0;
  bool uses_time =
      false;  ///< __TIME__ or its kin is spelt in what was compiled: the clock was real
  std::string log;
  std::string image;
  std::vector<std::string> lowered;    ///< one for each name expression, in their order
  std::vector<std::string> looked_at;  ///< every path that NVRTC looked at, in order of first use

  std::string encode() const;
  static std::optional<Compiled> decode(ByteView body);
};

struct Crashed {
  std::uint32_t signal = 0;
  std::uint8_t out_of_memory = 0;   ///< an allocation had been refused before
  std::uint8_t stack_overflow = 0;  ///< the fault was at the compile thread's guard page

  std::string encode() const;
  static std::optional<Crashed> decode(ByteView body);
};

}  // namespace cukiln::wire
