// SPDX-License-Identifier: Apache-2.0
/* A host in C: makes the shipped kernels ready and shows what it got. How to launch: see cukiln_kernel_launch. */
#include <cukiln/cukiln.h>
#include <cukiln/nvfp4/nvfp4.h>

#include <stdio.h>

static int fail(void) {
  fprintf(stderr, "%s: %s\n%s", cukiln_code_name(cukiln_last_error_code()), cukiln_last_error(),
          cukiln_last_error_log());
  return cukiln_last_error_code() == CUKILN_COMPILE_FAILED ? 1 : 3;
}

static void show(void* user, size_t done, size_t total, const cukiln_module_report* last) {
  (void)user;
  fprintf(stderr, "[%zu/%zu] %s %s: %s, %.1f ms\n", done, total, last->name, last->target,
          last->error_code == CUKILN_OK ? last->reason : cukiln_code_name(last->error_code),
          last->milliseconds);
}

int main(void) {
  cukiln_loader* loader = NULL;
  if (cukiln_loader_create(NULL, &loader) != CUKILN_OK) return fail(); /* from the environment */

  cukiln_preload_options options = {.struct_bytes = sizeof options, .progress = show};
  cukiln_preload_report report = {.struct_bytes = sizeof report};
  if (cukiln_nvfp4_preload(loader, &options, &report) != CUKILN_OK) {
    const int code = fail(); /* without a GPU: the driver is missing, exit code 3 */
    cukiln_loader_destroy(loader);
    return code;
  }
  cukiln_loader_seal(loader, CUKILN_SEAL_FAIL);

  printf("cukiln %s: %zu from the store, %zu compiled, %.1f ms\n", cukiln_version(), report.hits,
         report.compiled, report.milliseconds);
  for (size_t id = 0; id < cukiln_loader_kernel_count(loader); ++id) {
    char name[128];
    const cukiln_kernel kernel = cukiln_loader_at(loader, id);
    cukiln_kernel_name(kernel, name, sizeof name);
    printf("%zu %s: %zu parameters\n", id, name, cukiln_kernel_parameter_count(kernel));
  }
  cukiln_loader_destroy(loader);
  return 0;
}
