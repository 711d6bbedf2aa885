// SPDX-License-Identifier: Apache-2.0
// A hit in a store with few entries and one with many, asked in turns.
//
//   cukiln_bench_growth FOLDER FEW MANY
//
// A hit is what a preload asks the store for one module: recorded dependency sets, then the whole
// entry, checked. Beside it the floor: what SQLite alone takes to find the same row and its cubin,
// unchecked. The many are each asked for at most once, so that nothing but the operating system's
// cache helps; that holds both files whole, or a disk would be measured. Each batch is asked of a
// store that was just opened, once for entries that were stored one after the other, as those of
// one manifest are, and once for entries from all over.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hasher.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/sqlite_handle.hpp"
#include "core/store/sqlite_store.hpp"
#include "program.hpp"

using namespace cukiln;  // NOLINT: a program
using cukiln::bench::fail;
using cukiln::bench::median;
using cukiln::bench::now_us;

namespace {

constexpr std::size_t kImageBytes = 6 << 10;
constexpr std::size_t kBatches = 31;
constexpr std::size_t kBatch = 16;
constexpr const char* kFile = "/v6/gen-0001/store.db";

double resident_mb() {
  long pages = 0;
  long resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// The smallest ELF file that passes for a cubin of sm_100, and then some bytes.
std::string image(std::uint64_t seed) {
  std::string bytes(kImageBytes, '\0');
  std::mt19937_64 random(seed);
  for (std::size_t i = 64; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, bytes.begin() + static_cast<long>(i));
  }
  const unsigned char identification[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8};
  std::copy(std::begin(identification), std::end(identification), bytes.begin());
  bytes[18] = static_cast<char>(190);  // e_machine: CUDA
  bytes[49] = 100;                     // e_flags, bits 8 to 15: the SM
  return bytes;
}

/// Kernels without a header: every set holds.
struct AllHold final : SetCheck {
  std::optional<SetTree::Label> label(const std::string&) override { return SetTree::Label{}; }
  bool holds(const DependencySet&, bool) override { return true; }
};

CompileRequest request(std::uint64_t number) {
  CompileRequest request;
  request.sources.push_back(
      {"/cukiln/src/k.cu",
       SharedBytes("extern \"C\" __global__ void k() {} // " + std::to_string(number))});
  request.options.arguments = {"--gpu-architecture=sm_100a", "--std=c++17"};
  request.target = {100, 'a'};
  request.toolchain.version = "13.0.88";
  return request;
}

StoreEntry entry(std::uint64_t number) {
  StoreEntry out;
  out.request_canonical = request(number).canonical();
  out.request = CompileRequest::digest_of(out.request_canonical);
  out.key = cache_key_of(out.request_canonical, out.dependencies.canonical());
  out.cubin.image = SharedBytes(image(number));
  out.cubin.kernels.push_back({"k", "k", 32, 0, 0, 0});
  out.labels = {"k", "k.cu", "sm_100a", "--std=c++17", "nvrtc 13.0.88"};
  out.source_text = "extern \"C\" __global__ void k() {}";
  out.compile_us = 50'000;
  return out;
}

Result<std::unique_ptr<SqliteStore>> open(const std::string& folder) {
  SqliteStoreOptions options;
  options.directory = folder;
  options.max_bytes = 16ull << 30;
  return SqliteStore::open(std::move(options));
}

std::vector<CompileRequest> batch_of(const std::vector<std::uint64_t>& numbers, std::size_t at) {
  std::vector<CompileRequest> requests;
  for (std::size_t i = 0; i < kBatch; ++i) {
    requests.push_back(request(numbers[(at + i) % numbers.size()]));
  }
  return requests;
}

/// Has the operating system's cache hold all of a file. The store is closed.
void read_through(const std::string& path) {
  std::vector<char> buffer(1 << 20);
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) std::exit(fail("the store's file is not there"));
  while (std::fread(buffer.data(), 1, buffer.size(), file) == buffer.size()) {
  }
  std::fclose(file);
}

/// A batch on a store that was just opened, as a host's start does it.
double look_up_us(const std::string& folder, const std::vector<CompileRequest>& requests) {
  auto store = open(folder);
  if (!store) std::exit(fail(store.error().message()));
  const double start = now_us();
  for (const CompileRequest& asked : requests) {
    const std::string canonical = asked.canonical();
    AllHold files;
    const auto found = (*store)->find(CompileRequest::digest_of(canonical), canonical, files,
                                      ObjectTier::Purpose::use);
    if (!found || !*found) std::exit(fail("an entry is missing"));
  }
  return (now_us() - start) / kBatch;
}

/// The same with SQLite alone: one row by the request's index, and its cubin.
double sqlite_us(const std::string& folder, const std::vector<CompileRequest>& requests) {
  auto db = SqliteHandle::open(folder + kFile, {});
  if (!db) std::exit(fail(db.error().message()));
  std::vector<RequestDigest> digests;
  for (const CompileRequest& asked : requests) {
    digests.push_back(CompileRequest::digest_of(asked.canonical()));
  }
  std::size_t bytes = 0;
  const double start = now_us();
  for (const RequestDigest& digest : digests) {
    Query query = db->query(
        "SELECT o.check128, r.canonical, o.details, o.summary, p.data FROM request r "
        "JOIN object o ON o.id=r.only_entry JOIN payload p ON p.id=o.id WHERE r.digest=?");
    const auto row = query.blob(view_of(digest)).next();
    if (!row || !*row) std::exit(fail("an entry is missing"));
    bytes += std::string(query.column_bytes(4)).size();
  }
  const double took = now_us() - start;
  if (bytes != kBatch * kImageBytes) std::exit(fail("a cubin is missing"));
  return took / kBatch;
}

/// The numbers below `count` in runs of `run`, the runs in random order.
std::vector<std::uint64_t> shuffled(std::uint64_t count, std::uint64_t run) {
  std::vector<std::uint64_t> runs(count / run);
  for (std::uint64_t i = 0; i < runs.size(); ++i) runs[i] = i;
  std::shuffle(runs.begin(), runs.end(), std::mt19937_64(1));
  std::vector<std::uint64_t> numbers;
  for (const std::uint64_t first : runs) {
    for (std::uint64_t i = 0; i < run; ++i) numbers.push_back(first * run + i);
  }
  return numbers;
}

struct Times {
  double ours_us[2], sqlite_us[2];  // of the few, of the many
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return fail("usage: cukiln_bench_growth FOLDER FEW MANY");
  const std::uint64_t counts[] = {std::strtoull(argv[2], nullptr, 10),
                                  std::strtoull(argv[3], nullptr, 10)};
  std::string folders[2];
  double fill_us[2] = {};
  for (int i = 0; i < 2; ++i) {
    folders[i] = std::string(argv[1]) + "/" + argv[2 + i];
    auto store = open(folders[i]);
    if (!store) return fail(store.error().message());
    const double start = now_us();
    for (std::uint64_t number = 0; number < counts[i]; ++number) {
      if (const auto put = (*store)->put(entry(number)); !put) return fail(put.error().message());
    }
    fill_us[i] = (now_us() - start) / static_cast<double>(counts[i]);
  }
  for (const std::string& folder : folders) read_through(folder + kFile);
  look_up_us(folders[1], batch_of(shuffled(counts[1], 1), 0));
  const double resident_before = resident_mb();
  const auto measured = [&](std::uint64_t run) {
    const std::vector<std::uint64_t> numbers[] = {shuffled(counts[0], run),
                                                  shuffled(counts[1], run)};
    std::size_t at[2] = {};
    const auto next = [&](int i) { return batch_of(numbers[i], at[i]++ * kBatch); };
    std::vector<double> ours[2];
    std::vector<double> floor[2];
    for (std::size_t batch = 0; batch < kBatches; ++batch) {
      for (int i = 0; i < 2; ++i) {
        ours[i].push_back(look_up_us(folders[i], next(i)));
        floor[i].push_back(sqlite_us(folders[i], next(i)));
      }
    }
    return Times{{median(ours[0]), median(ours[1])}, {median(floor[0]), median(floor[1])}};
  };
  const Times together = measured(kBatch);
  const Times apart = measured(1);
  const double grew_mb = resident_mb() - resident_before;
  std::printf("{");
  const std::pair<const char*, const Times&> all[] = {{"together", together}, {"apart", apart}};
  for (const auto& [name, times] : all) {
    std::printf(
        "\"%s\": {\"few_us\": %.2f, \"many_us\": %.2f, \"sqlite_few_us\": %.2f, "
        "\"sqlite_many_us\": %.2f}, ",
        name, times.ours_us[0], times.ours_us[1], times.sqlite_us[0], times.sqlite_us[1]);
  }
  std::printf(
      "\"few\": %llu, \"many\": %llu, \"put_few_us\": %.1f, \"put_many_us\": %.1f, "
      "\"resident_grew_mb\": %.2f}\n",
      static_cast<unsigned long long>(counts[0]), static_cast<unsigned long long>(counts[1]),
      fill_us[0], fill_us[1], grew_mb);
  return 0;
}
