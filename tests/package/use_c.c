// SPDX-License-Identifier: Apache-2.0
// A C host that uses only the installed package.
#include <cukiln/cukiln.h>

#include <stdio.h>

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: use_c STORE\n");
    return 2;
  }
  cukiln_options options = {.struct_bytes = sizeof options, .store_directory = argv[1]};
  cukiln_loader* loader = NULL;
  if (cukiln_loader_create(&options, &loader) != CUKILN_OK) {
    fprintf(stderr, "%s\n", cukiln_last_error());
    return 1;
  }
  printf("cukiln %s\n", cukiln_version());
  cukiln_loader_destroy(loader);
  return 0;
}
