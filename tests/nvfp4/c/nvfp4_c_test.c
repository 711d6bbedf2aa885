// SPDX-License-Identifier: Apache-2.0
// The C interface of libcukiln_nvfp4 from C, over handles and errors of libcukiln.
#include <stdio.h>
#include <string.h>

#include <cukiln/cukiln.h>
#include <cukiln/nvfp4/nvfp4.h>
#include <cukiln/nvfp4/torch.h>

static int failures = 0;

static void check_that(int ok, const char* text, int line) {
  if (!ok) {
    ++failures;
    fprintf(stderr, "%s:%d: %s\n  last error: %s: %.300s\n", __FILE__, line, text,
            cukiln_code_name(cukiln_last_error_code()), cukiln_last_error());
  }
}
#define CHECK(condition) check_that((condition) != 0, #condition, __LINE__)

static void sources_are_found_by_their_names(void) {
  size_t bytes = 0;
  const char* const text = cukiln_nvfp4_source("sampler.cu", &bytes);
  CHECK(text != NULL && bytes > 1000 && strlen(text) == bytes && strstr(text, "sampler") != NULL);
  CHECK(cukiln_nvfp4_source("ampler.cu", &bytes) == NULL && bytes == 0);
  CHECK(cukiln_nvfp4_source("sampling/sampler.cu", NULL) == text);
  CHECK(strstr(cukiln_nvfp4_source("shipped.json", NULL), "\"sampler_f16\"") != NULL);
  CHECK(cukiln_nvfp4_source(NULL, NULL) == NULL);
}

static void a_preload_knows_the_modules_that_come_with_cukiln(void) {
  const cukiln_options options = {.struct_bytes = sizeof options, .memory_only = 1, .offline = 1};
  cukiln_loader* loader = NULL;
  CHECK(cukiln_loader_create(&options, &loader) == CUKILN_OK);
  const char* const target = "sm_100a";
  const char* module = "amax_gsa";
  const cukiln_preload_options preload = {.struct_bytes = sizeof preload,
                                          .no_load = 1,
                                          .modules = &module,
                                          .module_count = 1,
                                          .targets = &target,
                                          .target_count = 1};
  CHECK(cukiln_nvfp4_preload(loader, &preload, NULL) == CUKILN_NOT_FOUND);  // offline
  CHECK(strstr(cukiln_last_error(), "amax_gsa") != NULL);
  CHECK(strstr(cukiln_last_error(), "has no module") == NULL);
  module = "axpy";
  CHECK(cukiln_nvfp4_preload(loader, &preload, NULL) == CUKILN_NOT_FOUND);
  CHECK(strstr(cukiln_last_error(), "the manifest has no module \"axpy\"") != NULL);
  cukiln_loader_destroy(loader);
}

static void a_runner_needs_the_modules_of_its_format_and_tokens(void) {
  const char* names[8] = {NULL};
  size_t count = 0;
  cukiln_torch_linear linear = {.struct_bytes = sizeof linear,
                                .in_features = 4096,
                                .out_features = 1024,
                                .max_tokens = 8,
                                .w4a16 = 1};
  CHECK(cukiln_torch_modules(&linear, NULL, 90, names, 8, &count) == CUKILN_OK);
  CHECK(count == 2 && strcmp(names[0], "amax_gsa") == 0);
  CHECK(strcmp(names[1], "nvfp4_w4a16_gemm") == 0);
  linear.max_tokens = 4096;
  CHECK(cukiln_torch_modules(&linear, NULL, 90, names, 1, &count) == CUKILN_OK && count == 7);
  CHECK(strcmp(names[1], "nvfp4_w4a16_gemm") == 0);  // only as many as there is place for
  const cukiln_torch_moe moe = {.struct_bytes = sizeof moe,
                                .experts = 8,
                                .hidden = 128,
                                .width = 128,
                                .max_tokens = 4,
                                .max_topk = 2};
  CHECK(cukiln_torch_modules(NULL, &moe, 90, names, 8, &count) == CUKILN_OK && count == 4);
  CHECK(strcmp(names[3], "nvfp4_moe_w4a16") == 0);
  CHECK(cukiln_torch_modules(&linear, &moe, 90, names, 8, &count) == CUKILN_INVALID_ARGUMENT);
  CHECK(cukiln_torch_modules(NULL, NULL, 90, names, 8, &count) == CUKILN_INVALID_ARGUMENT);
  CHECK(cukiln_torch_modules(&linear, NULL, 90, names, 8, NULL) == CUKILN_INVALID_ARGUMENT);
}

static void errors_are_the_ones_that_libcukiln_keeps(void) {
  CHECK(cukiln_nvfp4_preload(NULL, NULL, NULL) == CUKILN_INVALID_ARGUMENT);
  CHECK(cukiln_last_error_code() == CUKILN_INVALID_ARGUMENT);
  CHECK(strcmp(cukiln_last_error(), "loader is NULL; expected a pointer") == 0);
  CHECK(cukiln_torch_register() == CUKILN_NOT_FOUND);  // no PyTorch here
  CHECK(strstr(cukiln_last_error(), "PyTorch is not loaded") != NULL);
}

static void a_gemm_needs_a_device_and_refuses_null(void) {
  const cukiln_options options = {.struct_bytes = sizeof options,
                                  .memory_only = 1,
                                  .offline = 1,
                                  .cuda_library = "/nonexistent/libcuda.so"};
  cukiln_loader* loader = NULL;
  CHECK(cukiln_loader_create(&options, &loader) == CUKILN_OK);
  cukiln_nvfp4_gemm* gemm = (cukiln_nvfp4_gemm*)&loader;
  CHECK(cukiln_nvfp4_gemm_create(loader, 0, &gemm) == CUKILN_DRIVER && gemm == NULL);
  gemm = (cukiln_nvfp4_gemm*)&loader;
  CHECK(cukiln_nvfp4_w4a16_gemm_create(loader, 0, &gemm) == CUKILN_DRIVER && gemm == NULL);
  CHECK(cukiln_nvfp4_gemm_create(NULL, 0, &gemm) == CUKILN_INVALID_ARGUMENT);
  CHECK(strcmp(cukiln_last_error(), "loader is NULL; expected a pointer") == 0);
  CHECK(cukiln_nvfp4_gemm_create(loader, 0, NULL) == CUKILN_INVALID_ARGUMENT);
  cukiln_nvfp4_tactic name = {.splits = 7};
  CHECK(cukiln_nvfp4_gemm_tactic(NULL, 8, 64, 64, 0, &name) == CUKILN_INVALID_ARGUMENT);
  CHECK(strcmp(cukiln_last_error(), "gemm is NULL; expected a pointer") == 0 && name.splits == 7);
  CHECK(cukiln_nvfp4_gemm_tactics(NULL, 8, 64, 64) == 0);
  CHECK(cukiln_nvfp4_gemm_workspace_bytes(NULL, 8, 64, 64) == 0);
  const cukiln_nvfp4_gemm_call call = {.struct_bytes = sizeof call};
  CHECK(cukiln_nvfp4_gemm_launch(NULL, &call) == CUKILN_INVALID_ARGUMENT);
  CHECK(cukiln_nvfp4_gemm_save_tactics(NULL, loader, NULL, 0) == CUKILN_INVALID_ARGUMENT);
  cukiln_nvfp4_gemm_destroy(NULL);
  cukiln_loader_destroy(loader);
}

int main(void) {
  sources_are_found_by_their_names();
  a_preload_knows_the_modules_that_come_with_cukiln();
  a_runner_needs_the_modules_of_its_format_and_tokens();
  errors_are_the_ones_that_libcukiln_keeps();
  a_gemm_needs_a_device_and_refuses_null();
  printf("%d failed checks\n", failures);
  return failures == 0 ? 0 : 1;
}
