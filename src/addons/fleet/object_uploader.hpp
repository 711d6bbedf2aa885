// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "addons/fleet/negative_cache.hpp"
#include "addons/fleet/remote_server.hpp"
#include "addons/fleet/remote_store_options.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/remote_report.hpp"

namespace cukiln {

/// How the upload of an object to a server ended.
struct UploadEnding {
  enum class What {
    acknowledged,
    failed,   ///< a later attempt may succeed
    refused,  ///< so is each other upload to this server
    lost,     ///< of this object alone
    kept      ///< the object is of no use elsewhere
  };
  What what = What::acknowledged;
  std::string reason, detail, advice;  ///< as in RemoteReport::NotUploaded
};

/// Signs objects and sends them to a server, once. Threads: safe.
class ObjectUploader {
 public:
  /// The arguments outlive this.
  ObjectUploader(const RemoteStoreOptions& options, RemoteTelemetry& telemetry,
                 NegativeCache& absent)
      : options_(options), telemetry_(telemetry), absent_(absent) {}

  UploadEnding upload(RemoteServer& server, const ObjectName& name, const StoreObject& object,
                      SteadyTime deadline);
  /// Returns why the fleet would reject all that this machine's key signs now; empty if it does
  /// not.
  RemoteReport::NotUploaded key_problem() const;

 private:
  /// Returns what an object's content or this machine's key has against an upload; `acknowledged`
  /// if nothing has.
  UploadEnding check(const StoreObject& object) const;
  RemoteAnswer put(RemoteServer& server, const ObjectName& name, ByteView bytes,
                   SteadyTime deadline, const std::string& part = {});
  /// Adds the set of an entry that a server has now to those of its request.
  RemoteAnswer add_to_sets(RemoteServer& server, const StoreEntry& entry, SteadyTime deadline);

  const RemoteStoreOptions& options_;
  RemoteTelemetry& telemetry_;
  NegativeCache& absent_;
};

/// Returns what to do about uploads that end like this.
const char* upload_advice(RemoteStatus status) noexcept;

}  // namespace cukiln
