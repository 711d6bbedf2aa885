// SPDX-License-Identifier: Apache-2.0
// libFuzzer: reads rows of damaged and forged stores. Built by scripts/fuzz.
//
// The first byte selects what the rest is: one column; the columns of an entry with valid key and
// hashes; or a value that replaces a column of a real store. Rules: nothing is read beyond its end;
// a parsed value encodes to the bytes that were read; the store returns an entry as it was put, or
// none; it is found again once it was put again.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "core/base/bytes.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/set_tree.hpp"
#include "core/store/object_codec.hpp"
#include "core/store/source_text.hpp"
#include "core/store/sqlite_store.hpp"
#include "fuzz/require.hpp"
#include "support/store_entries.hpp"

namespace {

using namespace cukiln;
using cukiln::testing::require;

void try_set(ByteView bytes) {
  if (const auto set = DependencySet::parse(bytes)) {
    require(set->canonical() == bytes, "a set encodes to the bytes that were parsed");
  }
}

void try_tree(ByteView bytes) {
  const auto tree = SetTree::parse(bytes);
  if (!tree) {
    return;
  }
  require(tree->size() <= SetTree::kMaxSets, "a tree has a limit");
  std::string differs;
  const auto found = tree->candidates(
      [](const std::string& path) {
        SetTree::Label label{};
        label[0] = static_cast<std::uint8_t>(path.size());
        return label;
      },
      &differs);
  require(found.size() <= tree->size(), "no leaf is invented");
}

void try_kernels(ByteView bytes) {
  if (const auto kernels = decode_kernels(bytes)) {
    require(encode_kernels(*kernels) == bytes, "kernels are written as they were read");
  }
}

/// Columns behind two bytes of length each; the last has what is left.
struct Columns {
  ByteView rest;
  ByteView next() {
    std::uint16_t bytes = 0;
    if (rest.size() >= sizeof bytes) {
      std::memcpy(&bytes, rest.data(), sizeof bytes);
      rest.remove_prefix(sizeof bytes);
    }
    const ByteView column = rest.substr(0, bytes);
    rest.remove_prefix(column.size());
    return column;
  }
};

void try_entry(ByteView bytes) {
  Columns columns{bytes};
  Object object;
  object.request = columns.next();
  object.summary = columns.next();
  object.details = columns.next();
  object.origin = static_cast<Origin>(static_cast<int>(columns.next().size()) - 1);
  object.signer = columns.next();
  object.data = SharedBytes(std::string(columns.rest));
  const auto set = set_in_details(object.details);
  const CacheKey key = cache_key_of(object.request, set.value_or(""));
  object.name = ObjectName::of(key);
  const auto entry = decode_entry(object);
  if (entry) {
    require(entry->key == key, "an entry has its key");
    require(entry->request == CompileRequest::digest_of(entry->request_canonical),
            "and its request");
    require(set && entry->dependencies.canonical() == *set, "and its set");
    require(encode(*entry).details == object.details, "and its log");
  }
}

struct Change {
  const char* sql;
  enum Type { blob, text, number } type;
};
constexpr Change kChanges[] = {
    {"UPDATE object SET request=?", Change::blob},
    {"UPDATE object SET check128=?", Change::blob},
    {"UPDATE object SET summary=?", Change::blob},
    {"UPDATE object SET details=?", Change::blob},
    {"UPDATE object SET name=?", Change::blob},
    {"UPDATE object SET kind=?", Change::text},
    {"UPDATE object SET signer=?", Change::text},
    {"UPDATE object SET bytes=?", Change::number},
    {"UPDATE object SET origin=?", Change::number},
    {"UPDATE object SET created_s=?", Change::number},
    {"UPDATE object SET last_used_s=?", Change::number},
    {"UPDATE object SET hits=?", Change::number},
    {"UPDATE payload SET source_text=?", Change::blob},
    {"UPDATE payload SET data=?", Change::blob},
    {"UPDATE payload SET id=?", Change::number},
    {"UPDATE request SET peak_bytes=?", Change::number},
    {"UPDATE request SET digest=?", Change::blob},
    {"UPDATE request SET canonical=?", Change::blob},
    {"UPDATE request SET tree=?", Change::blob},
    {"UPDATE request SET check128=?", Change::blob},
    {"UPDATE request SET only_entry=?", Change::number},
};

struct RealStore {
  testing::ScratchFolder folder;
  StoreEntry entry = testing::make_entry(1, {64, 0, 2, "sm_100a"});
  std::unique_ptr<SqliteStore> store;

  RealStore() {
    SqliteStoreOptions options;
    options.directory = folder / "store";
    options.reserve_bytes = 0;
    store = *SqliteStore::open(options);
  }

  void require_same(const Lookup& found) const {
    require(!found || !*found || testing::same_content(**found, entry),
            "an entry is the one that was put");
  }

  void try_change(const Change& change, ByteView value) const {
    require(bool(store->put(entry)), "an entry can be put");
    const auto changed =
        store->session().write(std::chrono::seconds(10), [&](SqliteHandle& db) -> Result<void> {
          Query query = db.query(change.sql);
          std::int64_t number = 0;
          std::memcpy(&number, value.data(), std::min(value.size(), sizeof number));
          switch (change.type) {
            case Change::blob: query.blob(value); break;
            case Change::text: query.text(value); break;
            case Change::number: query.number(number); break;
          }
          return query.run();
        });
    if (!changed) {
      return;  // SQLite refuses it
    }
    static_cast<void>(store->list());
    static_cast<void>(store->list_sets(entry.request, entry.request_canonical));
    require_same(store->peek(entry.key));
    if (!testing::finds(*store, entry)) {
      require_same(store->get(entry.key));
      require(bool(store->put(entry)), "an entry can be put again");
      require(testing::finds(*store, entry), "and is found then", change.sql);
    }
    require(bool(store->remove_all()), "a store can be emptied");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const RealStore store;
  if (size < 2) {
    return 0;
  }
  const ByteView bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0: static_cast<void>(RequestFields::parse(bytes)); break;
    case 1: try_set(bytes); break;
    case 2: try_tree(bytes); break;
    case 3: try_kernels(bytes); break;
    case 4: try_entry(bytes); break;
    case 5: static_cast<void>(SourceTextDecoder().decode(bytes, {})); break;
    default:
      store.try_change(kChanges[static_cast<std::uint8_t>(bytes[0]) % std::size(kChanges)],
                       bytes.substr(1));
  }
  return 0;
}
