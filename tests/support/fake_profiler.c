// SPDX-License-Identifier: Apache-2.0
// A profiler's library as NVTX 3 opens it (NVTX_INJECTION64_PATH). It appends what it is told to
// the file $FAKE_PROFILER_LOG, a line each with the thread's number:
//
//   domain NAME | push DOMAIN MESSAGE | pop DOMAIN
//
// FAKE_PROFILER_FAILS: its initialisation fails.
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*function)(void);
struct callbacks {
  size_t bytes;
  int (*module_table)(int module, function*** table, unsigned* size);
};
struct attributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};

static void append(const char* text) {
  const char* const path = getenv("FAKE_PROFILER_LOG");
  FILE* const file = path != NULL ? fopen(path, "a") : NULL;
  if (file != NULL) {
    fprintf(file, "%d %s\n", (int)gettid(), text);
    fclose(file);
  }
}

static char domain_name[64];

static void* create_domain(const char* name) {
  char line[80];
  snprintf(domain_name, sizeof domain_name, "%s", name);
  snprintf(line, sizeof line, "domain %.64s", name);
  append(line);
  return domain_name;
}

static int push(void* domain, const struct attributes* range) {
  char line[256];
  if (range->version != 3 || range->size != sizeof *range || range->message_type != 1) abort();
  snprintf(line, sizeof line, "push %.64s %.128s", (const char*)domain, range->message);
  append(line);
  return 0;
}

static int pop(void* domain) {
  char line[80];
  snprintf(line, sizeof line, "pop %.64s", (const char*)domain);
  append(line);
  return 0;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*export_table)(uint32_t id)) {
  static const unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7};
  const struct callbacks* const callbacks = export_table(1);
  const uint32_t* const version = export_table(3);
  if (getenv("FAKE_PROFILER_FAILS") != NULL || callbacks == NULL || version == NULL) return 0;
  if (callbacks->bytes < sizeof *callbacks || version[2] != 3 || export_table(2) != NULL) abort();
  for (int module = 1; module <= 6; ++module) {
    function** table = NULL;
    unsigned size = 0;
    if (!callbacks->module_table(module, &table, &size) || size != sizes[module]) abort();
    for (unsigned i = 1; i < size; ++i) {
      if (table[i] == NULL) abort();
    }
    if (table[0] != NULL || table[size] != NULL) abort();
    if (module == 5) {
      *table[4] = (function)push;
      *table[5] = (function)pop;
      *table[12] = (function)create_domain;
    }
  }
  return callbacks->module_table(7, NULL, NULL) == 0;
}
