// SPDX-License-Identifier: Apache-2.0
#include "core/loader/toolchains.hpp"

#include <doctest/doctest.h>

#include "core/base/result.hpp"
#include "core/loader/fakes.hpp"
#include "core/loader/make_entry.hpp"
#include "core/loader/module_request.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

/// A machine without NVRTC, or with one that has these targets.
class MaybeCompiler final : public Compiler {
 public:
  Result<Toolchain> toolchain() override {
    return there ? Result<Toolchain>({"13.0.88", {}})
                 : Result<Toolchain>(make_error(ErrorCode::not_found, "there is no NVRTC"));
  }
  Result<std::vector<Target>> targets() override {
    CUKILN_CHECK(toolchain());
    return known;
  }
  Result<Toolchain> linker() override {
    return links ? Result<Toolchain>({"13.0", {}})
                 : Result<Toolchain>(make_error(ErrorCode::not_found, "there is no nvJitLink"));
  }
  std::vector<std::string> toolkit_folders() override { return {}; }
  Result<CompileOutcome> compile(const CompileJob&) override { return CompileOutcome(); }
  bool there = true;
  bool links = true;
  std::vector<Target> known{{100, 'a'}, {100, 'f'}};
};

/// A MapStore that lists one entry, for sm_100f.
class OneEntryStore final : public ObjectTier {
 public:
  explicit OneEntryStore(bool links = false) {
    ModuleSpec spec;
    spec.name = "demo";
    spec.sources = {SourceText{"demo.cu", "void k();"}};
    ModuleRequest request = *make_module_request(spec, {100, 'f'}, {"12.9.86", {}}, {});
    if (links) {
      request.request.link = LinkStep{{}, {}, {"12.9", {}}};
      request.canonical = request.request.canonical();
    }
    CompileResult result;
    result.cubin.image = SharedBytes(std::string("image"));
    const StoreEntry entry = make_entry(request.request, request.canonical, request.labels, result);
    key_ = entry.key;
    labels_ = request.labels;
    CHECK(entries_.put(entry));
  }
  const char* tier_name() const noexcept override { return "one"; }
  Lookup find(const RequestDigest& request, ByteView canonical, SetCheck& check,
              Purpose purpose) override {
    return entries_.find(request, canonical, check, purpose);
  }
  Result<SetTree> find_sets(const RequestDigest& request, ByteView canonical) override {
    return entries_.find_sets(request, canonical);
  }
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request,
                                             ByteView canonical) override {
    return entries_.list_sets(request, canonical);
  }
  using ObjectTier::get, ObjectTier::peek, ObjectTier::put;
  Lookup get(const CacheKey& key) override { return entries_.get(key); }
  Lookup peek(const CacheKey& key) override { return entries_.peek(key); }
  Result<PutOutcome> put(const StoreEntry& entry) override { return entries_.put(entry); }
  Result<bool> remove(const ObjectName& name) override { return entries_.remove(name); }
  Result<std::vector<EntrySummary>> list() override {
    EntrySummary summary;
    summary.key = key_;
    summary.labels = labels_;
    return std::vector<EntrySummary>{summary};
  }
  StoreStats stats() override { return {}; }
  Result<std::string> source_text(const CacheKey&) override { return std::string(); }

 private:
  MapStore entries_;
  CacheKey key_;
  EntryLabels labels_;
};

std::string text_of(const std::vector<ChosenTarget>& usable) {
  std::string text;
  for (const ChosenTarget& one : usable) {
    text += one.target.name() + " " + one.toolchain.version + "; ";
  }
  return text;
}

}  // namespace

TEST_CASE("with NVRTC a request has the one target that NVRTC compiles") {
  OneEntryStore store;
  MaybeCompiler compiler;
  Toolchains toolchains(store, compiler);
  CHECK(text_of(*toolchains.usable_for({107, 'a'})) == "sm_100f 13.0.88; ");
  CHECK(text_of(*toolchains.usable_for({100, 'a'})) == "sm_100a 13.0.88; ");
  const auto unknown = toolchains.usable_for({90, 'a'});
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code() == ErrorCode::invalid_argument);
}

TEST_CASE("without NVRTC a target and its families are looked up for the store's toolchains") {
  OneEntryStore store;
  MaybeCompiler compiler;
  compiler.there = false;
  Toolchains toolchains(store, compiler);
  CHECK(text_of(*toolchains.usable_for({107, 'a'})) ==
        "sm_107a 12.9.86; sm_107f 12.9.86; sm_100f 12.9.86; ");
  MapStore empty;
  const auto none = Toolchains(empty, compiler).usable_for({107, 'a'});
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == ErrorCode::not_found);
}

TEST_CASE("a module that links has the linker at hand, else those of entries that were linked") {
  MaybeCompiler compiler;
  const auto linkers_of = [&](ObjectTier& store) {
    const auto usable = Toolchains(store, compiler).usable_for({100, 'a'}, true);
    std::string text = usable ? "" : usable.error().message();
    for (const ChosenTarget& one : usable ? *usable : std::vector<ChosenTarget>()) {
      text += one.target.name() + " " + one.toolchain.version + "+" + one.linker.version + "; ";
    }
    return text;
  };
  OneEntryStore plain;
  OneEntryStore linked(true);
  CHECK(linkers_of(plain) == "sm_100a 13.0.88+13.0; ");
  compiler.links = false;  // an NVRTC without nvJitLink
  CHECK(linkers_of(plain) == "there is no nvJitLink");
  CHECK(linkers_of(linked) == "sm_100a 12.9.86+12.9; sm_100f 12.9.86+12.9; ");
  compiler.there = false;
  CHECK(linkers_of(linked) == "sm_100a 12.9.86+12.9; sm_100f 12.9.86+12.9; ");
  // its toolchain serves modules that do not link as well
  CHECK(text_of(*Toolchains(linked, compiler).usable_for({100, 'a'})) ==
        "sm_100a 12.9.86; sm_100f 12.9.86; ");
}
