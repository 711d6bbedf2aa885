# SPDX-License-Identifier: Apache-2.0
# cukiln_flags: how every target of ours is compiled.
add_library(cukiln_flags INTERFACE)
target_compile_features(cukiln_flags INTERFACE cxx_std_20)
target_compile_options(cukiln_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(cukiln_flags INTERFACE -Wno-restrict)  # wrong about std::string, PR 105651
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # An included .cpp passes for a header, whose types must not hold what an anonymous namespace has.
  target_compile_options(cukiln_flags INTERFACE -Wno-subobject-linkage)
endif()
target_include_directories(cukiln_flags INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Hardening: what a memory error of ours or of a library meets in a host. tests/scripts/hardening_test.py
# reads the binaries. Sanitizers find more and do not go with it. FORTIFY needs an optimised build.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
if(NOT CUKILN_SANITIZE)
  include(CheckCXXCompilerFlag)
  include(CheckCXXSourceCompiles)
  # glibc and the compiler agree on level 3 since glibc 2.34 with GCC 12 or clang 9; others warn.
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("#include <cstdio>\nint main() { return 0; }" CUKILN_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(fortify 2)
  if(CUKILN_HAS_FORTIFY_3)
    set(fortify 3)
  endif()
  target_compile_options(cukiln_flags INTERFACE -fstack-protector-strong
    "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${fortify}>")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    check_cxx_compiler_flag(-fcf-protection=full CUKILN_HAS_CF_PROTECTION)
    if(CUKILN_HAS_CF_PROTECTION)
      target_compile_options(cukiln_flags INTERFACE -fcf-protection=full)
    endif()
  endif()
  target_link_options(cukiln_flags INTERFACE LINKER:-z,relro,-z,now,-z,noexecstack)
endif()

if(CUKILN_STATIC_DEPENDENCIES)
  link_libraries(m)  # libsqlite3.a's
  if(NOT BUILD_SHARED_LIBS)  # what PyTorch's ops throw goes through libtorch, to the shared libstdc++
    add_link_options(-static-libstdc++ -static-libgcc)
  endif()
endif()

# What the library, its programs and its tests are built with. The compile worker has AddressSanitizer only:
# src/core/compile/CMakeLists.txt.
add_library(cukiln_sanitize INTERFACE)
if(CUKILN_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(CUKILN_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(CUKILN_SANITIZE STREQUAL "fuzzer")  # clang only; tests/fuzz links libFuzzer
  set(sanitize -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
elseif(CUKILN_SANITIZE)
  message(FATAL_ERROR
    "CUKILN_SANITIZE is \"${CUKILN_SANITIZE}\"; expected address, thread, fuzzer or nothing")
endif()
target_compile_options(cukiln_sanitize INTERFACE ${sanitize})
target_link_options(cukiln_sanitize INTERFACE ${sanitize})

find_program(CUKILN_CCACHE ccache)
if(CUKILN_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the checkout count as relative, so that all checkouts of a machine share one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CUKILN_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
