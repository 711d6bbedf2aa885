# SPDX-License-Identifier: Apache-2.0
"""The caches of other compilers, kept in cukiln's store.

Each module is for one of them, and imports it when it is itself imported:

- `triton`: `CacheManager` and `RemoteCacheBackend`, named in `TRITON_CACHE_MANAGER` or
  `TRITON_REMOTE_CACHE_BACKEND`.
- `cuda_core`: `ProgramCache`, for `Program.compile(cache=…)`, and a `Program` whose cache knows
  headers and name expressions.
- `inductor`: `RemoteCacheBackend`, and `install()`, which makes PyTorch's remote caches use it.
- `tvm_ffi`: `nvrtc_compile`, with the signature of `tvm_ffi.cpp.nvrtc.nvrtc_compile`.
- `vllm`: no cache, but the entry of the plugin for vLLM, which imports it when it is switched on.

A store that cannot be used costs a compile and never fails one: a read is then a miss, and what
cannot be stored is logged, once in a process for each kind.
"""
