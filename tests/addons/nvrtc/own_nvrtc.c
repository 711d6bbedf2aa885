// SPDX-License-Identifier: Apache-2.0
// A library with an NVRTC in it that it exports, as one that NVRTC is linked into statically: of version 12.3, with
// cubins of seven bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void* Program;
#define EXPORTED __attribute__((visibility("default")))

EXPORTED int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 3;
  return 0;
}
EXPORTED int nvrtcCreateProgram(Program* program, const char* text, const char* name, int count,
                                const char* const* texts, const char* const* names) {
  (void)text, (void)name, (void)count, (void)texts, (void)names;
  *program = malloc(1);
  return 0;
}
EXPORTED int nvrtcCompileProgram(Program program, int count, const char* const* options) {
  (void)program, (void)count, (void)options;
  return 0;
}
EXPORTED int nvrtcGetCUBINSize(Program program, size_t* bytes) {
  (void)program;
  *bytes = 7;
  return 0;
}
EXPORTED int nvrtcGetCUBIN(Program program, char* out) {
  (void)program;
  memcpy(out, "static", 7);
  return 0;
}
EXPORTED int nvrtcDestroyProgram(Program* program) {
  free(*program);
  *program = NULL;
  return 0;
}

// Is not open before a file `forked` is there, or for two seconds: says so by a file `opening`.
__attribute__((constructor)) static void open_slowly(void) {
  if (getenv("OWN_NVRTC_IS_SLOW") == NULL) {
    return;
  }
  fclose(fopen("opening", "w"));
  for (int i = 0; i < 2000 && access("forked", F_OK) != 0; ++i) {
    usleep(1000);
  }
}

// Uses it by calls that the dynamic linker binds.
EXPORTED int own_nvrtc_run(void) {
  int major = 0;
  int minor = 0;
  int code = nvrtcVersion(&major, &minor);
  const char* const option = "-arch=sm_90";
  size_t size = 0;
  char cubin[8] = "";
  Program program = NULL;
  code |= nvrtcCreateProgram(&program, "__global__ void k() {}", NULL, 0, NULL, NULL);
  code |= nvrtcCompileProgram(program, 1, &option);
  code |= nvrtcGetCUBINSize(program, &size);
  code |= size == 7 ? nvrtcGetCUBIN(program, cubin) : 1;
  code |= nvrtcDestroyProgram(&program);
  printf("%d.%d, code %d, %zu bytes, %s\n", major, minor, code, size, cubin);
  fflush(stdout);
  return code;
}
