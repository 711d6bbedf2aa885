// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/hasher.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/store_blob.hpp"
#include "support/scratch.hpp"

namespace cukiln::testing {

/// Makes an image that is accepted as a cubin of `capability`: an ELF header and `size` bytes that
/// depend on `seed`.
inline std::string fake_cubin(int capability, std::size_t size, std::uint64_t seed) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_ABIVERSION] = 8;
  header.e_machine = 190;
  header.e_flags = static_cast<Elf64_Word>(capability) << 8;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.resize(sizeof header + size);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (std::size_t i = sizeof header; i < bytes.size(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    bytes[i] = static_cast<char>(state >> 56);
  }
  return bytes;
}

inline StoreBlob make_blob(std::string kind, std::string key, std::string bytes,
                           std::string signer = {}, std::int64_t created_s = 0) {
  return {std::move(kind), std::move(key), SharedBytes(std::move(bytes)), std::move(signer),
          created_s};
}

/// What entries differ in.
struct EntryShape {
  std::size_t cubin_bytes = 20'000;
  std::uint64_t variant = 0;  ///< another dependency set of the same request
  std::size_t dependencies = 3;
  std::string target = "sm_100a";
};

/// Makes the entry of a request. The same numbers give the same bytes in every process.
inline StoreEntry make_entry(std::uint64_t number, const EntryShape& shape = {}) {
  CompileRequest request;
  const std::string name = "kernel_" + std::to_string(number);
  request.sources.push_back(
      {"/cukiln/src/" + name + ".cu", SharedBytes("__global__ void " + name + "() {}\n")});
  request.options.arguments = {"--gpu-architecture=" + shape.target, "-std=c++17"};
  request.target = *Target::parse(shape.target);
  request.toolchain = {"13.0.88", hash_of("nvrtc")};

  StoreEntry entry;
  entry.request_canonical = request.canonical();
  entry.request = CompileRequest::digest_of(entry.request_canonical);
  for (std::size_t i = 0; i < shape.dependencies; ++i) {
    entry.dependencies.add_file(
        "/cukiln/toolkit/header_" + std::to_string(i) + ".h",
        hash_of("header " + std::to_string(i) + " of variant " + std::to_string(shape.variant)));
  }
  entry.dependencies.add_folder("/cukiln/toolkit");
  entry.dependencies.add_absent("/cukiln/src/cuda_fp16.h");
  entry.key = cache_key_of(entry.request_canonical, entry.dependencies.canonical());
  entry.cubin.image = SharedBytes(
      fake_cubin(request.target.capability, shape.cubin_bytes, number * 1000 + shape.variant));
  entry.cubin.kernels = {{name, "_Z" + name + "v", 32, 1024, 0, 0}};
  entry.cubin.log = "ptxas info : 0 bytes gmem\n";
  entry.labels = {name, name + ".cu", shape.target, "-std=c++17", "nvrtc 13.0.88"};
  entry.source_text = std::string(request.sources.front().text.view());
  entry.compile_us = 48'000;
  return entry;
}

/// Makes the failure of a program that is named after `number` and looked at the files of
/// `make_entry(number, shape)`.
inline StoreEntry make_failed(std::uint64_t number, const EntryShape& shape = {}) {
  StoreEntry failed = make_entry(number, shape);
  CompileRequest request;
  request.sources.push_back({failed.labels.name + ".cu", SharedBytes(failed.source_text)});
  request.target = *Target::parse(shape.target);
  request.toolchain = {"13.0.88", hash_of("nvrtc")};
  request.program = {OutputKind::ptx, "/cukiln/work"};
  failed.request_canonical = request.failure_canonical();
  failed.request = CompileRequest::digest_of(failed.request_canonical);
  failed.key = cache_key_of(failed.request_canonical, failed.dependencies.canonical());
  failed.cubin = {SharedBytes(failed.labels.name + ".cu(1): error: no\n"), {}, {}};
  failed.source_text.clear();
  failed.compile_us = 0;
  failed.is_failure = true;
  return failed;
}

/// A SetCheck for files that match one set. Counts its calls.
class FilesOf final : public SetCheck {
 public:
  explicit FilesOf(DependencySet set) : set_(std::move(set)) {}
  std::optional<SetTree::Label> label(const std::string& path) override {
    ++labelled;
    const Observation* const seen = set_.find(path);
    return seen != nullptr ? SetTree::label_of(seen->kind, seen->hash) : SetTree::Label{};
  }
  bool holds(const DependencySet& set, bool trust_toolkit) override {
    ++checked;
    return set == set_ && (has_toolkit || trust_toolkit);
  }
  void differs(const std::string& path) override { different = path; }
  void lost(Loss loss) override { losses.push_back(loss); }

  bool has_toolkit = true;  ///< else a set holds if what it recorded may be trusted
  int labelled = 0, checked = 0;
  std::string different;
  std::vector<Loss> losses;

 private:
  DependencySet set_;
};

/// True if a store finds an entry by its request and files; without headers of CUDA, if what the
/// entry recorded of them may be trusted.
inline bool finds(ObjectTier& store, const StoreEntry& entry, bool has_toolkit = true) {
  FilesOf files(entry.dependencies);
  files.has_toolkit = has_toolkit;
  const Lookup found =
      store.find(entry.request, entry.request_canonical, files, ObjectTier::Purpose::use);
  return found && *found && (*found)->key == entry.key &&
         (*found)->cubin.image.view() == entry.cubin.image.view();
}

inline bool same_content(const StoreEntry& a, const StoreEntry& b) {
  return a.key == b.key && a.request == b.request && a.request_canonical == b.request_canonical &&
         a.dependencies == b.dependencies && a.cubin.image.view() == b.cubin.image.view() &&
         encode_kernels(a.cubin.kernels) == encode_kernels(b.cubin.kernels) &&
         a.cubin.log == b.cubin.log && a.labels.name == b.labels.name &&
         a.labels.source == b.labels.source && a.labels.target == b.labels.target &&
         a.labels.flags == b.labels.flags && a.labels.compiler == b.labels.compiler &&
         a.origin == b.origin && a.signer == b.signer && a.is_failure == b.is_failure;
}

/// A clock that a test sets.
class FakeClock final : public Clock {
 public:
  std::int64_t now_ns() const noexcept override { return now_s_value * 1'000'000'000; }
  std::int64_t now_s_value = 1'700'000'000;
};

inline void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

inline unsigned mode_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

}  // namespace cukiln::testing
