// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <sys/types.h>

// Functions of a host, declared and not defined.
#define STDIN_FILENO 0
#define STDOUT_FILENO 1
#define STDERR_FILENO 2
#define _SC_PAGESIZE 30
#define _SC_NPROCESSORS_ONLN 84

CUKILN_STD_FUNCTION int access(const char*, int);
CUKILN_STD_FUNCTION int close(int);
CUKILN_STD_FUNCTION pid_t getpid();
CUKILN_STD_FUNCTION uid_t getuid();
CUKILN_STD_FUNCTION int isatty(int);
CUKILN_STD_FUNCTION off_t lseek(int, off_t, int);
CUKILN_STD_FUNCTION ssize_t read(int, void*, size_t);
CUKILN_STD_FUNCTION unsigned int sleep(unsigned int);
CUKILN_STD_FUNCTION long sysconf(int);
CUKILN_STD_FUNCTION int unlink(const char*);
CUKILN_STD_FUNCTION int usleep(unsigned int);
CUKILN_STD_FUNCTION ssize_t write(int, const void*, size_t);
