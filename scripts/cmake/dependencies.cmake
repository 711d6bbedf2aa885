# SPDX-License-Identifier: Apache-2.0
# What cukiln is built from. Header-only where that keeps symbols out of hosts.
if(CUKILN_STATIC_DEPENDENCIES)  # for the searches below, pkg-config's among them
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()
find_package(Threads REQUIRED)
find_package(SQLite3 3.37 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED libxxhash)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)

add_library(cukiln_xxhash INTERFACE)
target_compile_definitions(cukiln_xxhash INTERFACE XXH_INLINE_ALL)
target_include_directories(cukiln_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIRS})

# BLAKE2b. The archive where there is one: it is position-independent, a few kB of it are linked, and no
# host meets another libsodium because of us.
find_library(SODIUM_ARCHIVE libsodium.a)
if(SODIUM_ARCHIVE)
  set_target_properties(PkgConfig::SODIUM PROPERTIES INTERFACE_LINK_LIBRARIES "${SODIUM_ARCHIVE}"
    INTERFACE_LINK_OPTIONS LINKER:--exclude-libs,libsodium.a)
endif()

add_library(cukiln_toml INTERFACE)
target_compile_definitions(cukiln_toml INTERFACE TOML_EXCEPTIONS=0)
target_include_directories(cukiln_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE})

# fmt 9 is compiled once, into the base layer (fmt_instances.cpp), in a namespace of our own: neither a
# host's shared fmt nor its static one can clash with it. Another version is taken header-only, which
# costs 3 s in every file.
add_library(cukiln_fmt INTERFACE)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  get_target_property(fmt_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(cukiln_fmt SYSTEM INTERFACE ${fmt_include})
  target_compile_definitions(cukiln_fmt INTERFACE
    "FMT_BEGIN_NAMESPACE=namespace fmt { inline namespace cukiln_v9 {" "FMT_END_NAMESPACE=}}")
else()
  target_link_libraries(cukiln_fmt INTERFACE fmt::fmt-header-only)
endif()

# Needed by the build alone: the installed targets do not name them.
set(CUKILN_HEADER_ONLY cukiln_fmt nlohmann_json::nlohmann_json cukiln_xxhash cukiln_toml)

if(CUKILN_CLI)
  find_package(CLI11 REQUIRED)
endif()
if(CUKILN_CLI OR CUKILN_DAEMON)
  pkg_check_modules(HIREDIS REQUIRED IMPORTED_TARGET hiredis)
  if(NOT CUKILN_STATIC_DEPENDENCIES)  # libcurl.a needs twenty others: those programs have no HTTP
    find_package(CURL 7.88 REQUIRED)  # before, it signs no uploads to S3
    set(CUKILN_CURL CURL::libcurl)
  endif()
endif()
if(CUKILN_DAEMON AND NOT CUKILN_STATIC_DEPENDENCIES)  # there is no static one
  pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
endif()
if(CUKILN_TESTS)
  find_package(doctest REQUIRED)
endif()
