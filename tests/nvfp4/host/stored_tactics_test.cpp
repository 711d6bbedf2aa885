// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/stored_tactics.hpp"

#include <set>
#include <string>

#include <doctest/doctest.h>

#include <cukiln/manifest.hpp>

namespace cukiln::nvfp4::detail {
namespace {

constexpr std::uint32_t kH200 = 132;
const std::string kHead = "cukiln tactics 1\nn k m kernel splits nanoseconds\n";

MeasuredGemm measured(std::int64_t n, std::int64_t k, std::int64_t m, const char* kernel,
                      int splits = 1) {
  return {n, k, m, {kernel, splits}, 12345};
}

std::string refusal(const std::vector<MeasuredGemm>& rows,
                    const GemmArchitecture& architecture = kGemmSm90) {
  const auto resolved = resolve_tactics(rows, architecture, kH200);
  return resolved ? "" : resolved.error().message();
}

DeviceInfo h200() {
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.capability = 90;
  device.num_sms = kH200;
  return device;
}

}  // namespace

TEST_CASE("tactics come back from their text as they were") {
  const std::vector<MeasuredGemm> rows = {measured(4096, 7168, 8, "nvfp4_gemm_decode_8x4"),
                                          measured(4096, 7168, 64, "nvfp4_gemm_prefill_64x128", 4)};
  const std::string text = tactics_text(rows);
  CHECK(text == kHead +
                    "4096 7168 8 nvfp4_gemm_decode_8x4 1 12345\n"
                    "4096 7168 64 nvfp4_gemm_prefill_64x128 4 12345\n");
  const auto parsed = parse_tactics(text);
  REQUIRE(parsed);
  REQUIRE(parsed->size() == 2);
  CHECK(tactics_text(*parsed) == text);
  CHECK(parse_tactics(kHead)->empty());
}

TEST_CASE("fault 300: a text that is not tactics is refused with the line that is wrong") {
  for (const char* const row :
       {"4096 7168 8 k 1", "4096 7168 8 k 1 5 6", "4096 7168 8 k 1 5 ", "4096 7168 0 k 1 5",
        "-8 7168 8 k 1 5", "4096 7168 8 k 0 5", "4096 7168 8 k x 5", "4096 7168 2147483648 k 1 5",
        "4096 7168 8 k 1 99999999999999999999", "4096  7168 8 k 1 5", "", " ", "0x10 7168 8 k 1 5",
        "4096 7168 8 k 1 5\r"}) {
    CAPTURE(row);
    const auto parsed = parse_tactics(kHead + "4096 7168 4 k 1 5\n" + row + "\n");
    REQUIRE(!parsed);
    CHECK(parsed.error().message() ==
          "line 4 of the tactics is not \"n k m kernel splits nanoseconds\": a name and numbers "
          "from 1");
  }
  for (const std::string& text :
       {std::string(), std::string("cukiln tactics 2\n") + kHead.substr(17), kHead.substr(0, 17),
        std::string(100, '\0'), "x" + kHead}) {
    CAPTURE(text);
    const auto parsed = parse_tactics(text);
    REQUIRE(!parsed);
    CHECK(parsed.error().message().find("these are of another format") != std::string::npos);
  }
  CHECK(parse_tactics(kHead + std::string(1 << 20, ' ')).error().message() ==
        "tactics have 1048625 bytes; expected at most 1048576");
}

TEST_CASE("rows name kernels of this device, and become its tactics") {
  const auto resolved = resolve_tactics({measured(4096, 7168, 8, "nvfp4_gemm_decode_8x7"),
                                         measured(4096, 7168, 16, "nvfp4_gemm_decode_16x2"),
                                         measured(4096, 7168, 32, "nvfp4_gemm_decode_32x4"),
                                         measured(4096, 7168, 64, "nvfp4_gemm_prefill_64x128", 4),
                                         measured(4096, 7168, 4096, "nvfp4_gemm_prefill_128x256")},
                                        kGemmSm90, kH200);
  REQUIRE_MESSAGE(resolved, resolved.error().message());
  for (const TunedGemm& row : *resolved) {
    const GemmTactics all = kGemmSm90.tactics(row.m, row.n, row.k, kH200);
    CHECK(std::find(all.begin(), all.end(), row.tactic) != all.end());
  }
  CHECK((*resolved)[1].tactic == GemmTactic{5, 1});
  CHECK((*resolved)[3].tactic.splits == 4);
  const StoredTactics stored = {"", *resolved, kH200};
  CHECK(*stored.table().find(9, 4096, 7168, kH200) == (*resolved)[1].tactic);
  CHECK(stored.table().find(9, 4096, 7168, kH200 - 1) == nullptr);
  CHECK(stored.table().find(4097, 4096, 7168, kH200) == nullptr);
}

TEST_CASE("fault 300: a row that a launch could not take is refused") {
  const char* const kDecode = "nvfp4_gemm_decode_8x4";
  CHECK(refusal({measured(4096, 7168, 8, kDecode)}).empty());
  CHECK(refusal({measured(4096, 7168, 8, "rm -rf")}) ==
        "[4096, 7168] with 8 tokens, rm -rf by 1: this device has no such kernel");
  CHECK(refusal({measured(4096, 7168, 8, "nvfp4_gemm_expand")}).find("no tactic") !=
        std::string::npos);
  CHECK(refusal({measured(4096, 7168, 8, kDecode, 2)}).find("no tactic") != std::string::npos);
  CHECK(refusal({measured(4096, 7168, 16, kDecode)}).find("no tactic of 16 tokens") !=
        std::string::npos);
  // It would serve 1 token too.
  CHECK(refusal({measured(4096, 7168, 64, "nvfp4_gemm_prefill_64x128", 4)})
            .find("no tactic of 1 tokens") != std::string::npos);
  // The clusters would not run at once.
  const std::vector<MeasuredGemm> decode = {measured(4096, 7168, 8, kDecode),
                                            measured(4096, 7168, 16, "nvfp4_gemm_decode_16x4"),
                                            measured(4096, 7168, 32, "nvfp4_gemm_decode_32x4")};
  std::vector<MeasuredGemm> many = decode;
  many.push_back(measured(4096, 7168, 4096, "nvfp4_gemm_prefill_128x128", 2));
  CHECK(refusal(decode).empty());
  CHECK(refusal(many).find("no tactic of 4096 tokens") != std::string::npos);
  CHECK(refusal({measured(4096, 7168, 8, kDecode), measured(4096, 7168, 8, kDecode)})
            .find("ascending order") != std::string::npos);
  CHECK(refusal({measured(4096, 7168, 8, kDecode), measured(4096, 2048, 8, kDecode)})
            .find("ascending order") != std::string::npos);
  CHECK(refusal({measured(4097, 7168, 8, kDecode)}).find("n is a multiple of 8") !=
        std::string::npos);
  CHECK(refusal({measured(4096, 7169, 8, kDecode)}).find("k of 32") != std::string::npos);
  CHECK(refusal({measured(std::int64_t{1} << 40, 7168, 8, kDecode)}).find("at most 2147483647") !=
        std::string::npos);
  CHECK(refusal({measured(4096, 7168, 8, kDecode)}, kGemmSm100).find("no such kernel") !=
        std::string::npos);
  CHECK(refusal({measured(4096, 7168, 4096, "nvfp4_gemm_128x256")}, kGemmSm100).empty());
}

TEST_CASE("fault 415: a stored row means the kernel that it names, and is refused without it") {
  const std::vector<MeasuredGemm> rows = {measured(4096, 7168, 8, "nvfp4_gemm_decode_8x7")};
  const auto resolved = resolve_tactics(rows, kGemmSm90, kH200);
  REQUIRE(resolved);
  const std::uint32_t kernel = (*resolved)[0].tactic.kernel;
  CHECK(kGemmSm90.kernels[kernel].name == rows[0].tactic.kernel);
  GemmArchitecture without = kGemmSm90;
  without.kernel_count = kernel;
  CHECK(refusal(rows, without).find("this device has no such kernel") != std::string::npos);
}

TEST_CASE("rows of W4A16 name its kernels, and no others") {
  const std::vector<MeasuredGemm> rows = {measured(4096, 7168, 8, "w4a16_gemm_decode_8x4"),
                                          measured(4096, 7168, 16, "w4a16_gemm_decode_16x10"),
                                          measured(4096, 7168, 32, "w4a16_gemm_skinny_32x64_3"),
                                          measured(4096, 7168, 64, "w4a16_gemm_prefill_64x256", 2)};
  CHECK(refusal(rows, kW4a16Sm90).empty());
  CHECK(refusal(rows).find("this device has no such kernel") != std::string::npos);
  CHECK(refusal({rows[0]}, kW4a16Any).empty());
  CHECK(refusal({rows[2]}, kW4a16Any).find("no such kernel") != std::string::npos);
  CHECK(refusal({rows[3]}, kW4a16Sm90).find("no tactic of 1 tokens") != std::string::npos);
  CHECK(refusal({rows[0], rows[1], measured(4096, 7168, 32, "w4a16_gemm_prefill_32x128", 4)},
                kW4a16Sm90)
            .empty());
  CHECK(refusal({rows[0], measured(4096, 7168, 32, "w4a16_gemm_prefill_32x128", 4)}, kW4a16Sm90)
            .find("no tactic of 9 tokens") != std::string::npos);
  CHECK(refusal({measured(4096, 7168, 8, "nvfp4_gemm_decode_8x4")}, kW4a16Sm90)
            .find("no such kernel") != std::string::npos);
}

TEST_CASE("each device has one architecture of each family") {
  CHECK(&architecture_of(kGemmFamily, 90) == &kGemmSm90);
  CHECK(&architecture_of(kGemmFamily, 103) == &kGemmSm100);
  CHECK(&architecture_of(kGemmFamily, 120) == &kGemmAny);
  CHECK(&architecture_of(kW4a16Family, 90) == &kW4a16Sm90);
  CHECK(&architecture_of(kW4a16Family, 100) == &kW4a16Any);
}

TEST_CASE("fault 301: another card, family or version of the kernels has another key") {
  const std::string key = tactics_key(h200(), "nvfp4_gemm", kGemmSm90);
  CHECK(key.substr(0, 25) == "1 nvfp4_gemm sm_90 132 " + key.substr(23, 2));
  CHECK(key.substr(key.size() - 12) == " NVIDIA H200");
  CHECK(tactics_key(h200(), "nvfp4_gemm", kGemmSm90) == key);
  CHECK(tactics_key(h200(), "nvfp4_w4a16_gemm", kGemmSm90) != key);
  CHECK(tactics_key(h200(), "nvfp4_gemm", kW4a16Sm90) != key);  // other modules
  CHECK(tactics_key(h200(), "nvfp4_gemm", kGemmAny) != key);    // fewer modules
  DeviceInfo other = h200();
  other.name = "NVIDIA H100 80GB HBM3";
  CHECK(tactics_key(other, "nvfp4_gemm", kGemmSm90) != key);
  other = h200();
  other.num_sms = 114;
  CHECK(tactics_key(other, "nvfp4_gemm", kGemmSm90) != key);
  other = h200();
  other.capability = 100;
  CHECK(tactics_key(other, "nvfp4_gemm", kGemmSm90) != key);
}

// Tactics that were measured before a primitive changed are of other sources, whichever file has
// it.
TEST_CASE("fault 301: the files that a GEMM includes are sources of it, by what they contain") {
  for (const GemmArchitecture* const architecture :
       {&kGemmSm90, &kGemmSm100, &kGemmAny, &kW4a16Sm90, &kW4a16Any}) {
    for (std::size_t i = 0; i < architecture->kernel_count; ++i) {
      const std::string module = architecture->kernels[i].module;
      CAPTURE(module);
      std::set<std::string> digests;
      for (const ModuleSpec& each : manifest().modules()) {
        if (each.name != module) continue;
        for (const Source& header : each.headers) {
          const std::string name = name_of(header).substr(name_of(header).rfind('/') + 1);
          if (name == "async_copy.cuh" || name == "machine.cuh") {
            digests.insert(std::string(std::get<SourceLiteral>(header).digest));
          }
        }
      }
      CHECK(digests.size() == 2);
      CHECK(digests.count("") == 0);
    }
  }
}

}  // namespace cukiln::nvfp4::detail
