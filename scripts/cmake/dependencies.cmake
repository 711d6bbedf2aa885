# What cukiln is built from. Header-only where that keeps symbols out of other people's processes.
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
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)

add_library(cukiln_xxhash INTERFACE)
target_compile_definitions(cukiln_xxhash INTERFACE XXH_INLINE_ALL)
target_include_directories(cukiln_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIRS})

add_library(cukiln_toml INTERFACE)
target_compile_definitions(cukiln_toml INTERFACE TOML_EXCEPTIONS=0)
target_include_directories(cukiln_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE})

# Needed by the build, not by whoever links the installed library.
set(CUKILN_HEADER_ONLY fmt::fmt-header-only nlohmann_json::nlohmann_json cukiln_xxhash cukiln_toml)

if(CUKILN_BUILD_CLI)
  find_package(CLI11 REQUIRED)
endif()
if(CUKILN_BUILD_TESTS)
  find_package(doctest REQUIRED)
endif()
