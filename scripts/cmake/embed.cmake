# SPDX-License-Identifier: Apache-2.0
# cukiln_embed(TARGET NAME BASE FOLDER FILES FILE…)
#
# Compiles files into TARGET as bytes, and makes them reachable through a generated header:
#
#     #include "embedded/NAME.hpp"
#     for (const cukiln::embedded::File& file : cukiln::embedded::NAME()) …   // name, bytes, blake2b_256
#
# A file's name is its path below FOLDER; the table is sorted by it. The bytes end in a NUL that
# file.bytes does not count. The same files give the same .cpp, byte for byte; an edited file
# regenerates it at the next build.

set(_cukiln_embed_script "${CMAKE_CURRENT_LIST_DIR}/embed_files.cmake")

function(cukiln_embed target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "BASE" "FILES")
  if(NOT arg_BASE OR NOT arg_FILES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cukiln_embed(${target} ${name}) takes BASE <folder> FILES <file>...; "
                        "given: ${ARGN}")
  endif()
  cmake_path(ABSOLUTE_PATH arg_BASE NORMALIZE)
  set(names "")
  set(files "")
  foreach(file IN LISTS arg_FILES)
    cmake_path(ABSOLUTE_PATH file NORMALIZE)
    cmake_path(IS_PREFIX arg_BASE "${file}" NORMALIZE is_below)
    if(NOT is_below)
      message(FATAL_ERROR "cukiln_embed(${target} ${name}): ${file} does not lie below ${arg_BASE}")
    endif()
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${arg_BASE}" OUTPUT_VARIABLE relative)
    list(APPEND names "${relative}")
    list(APPEND files "${file}")
  endforeach()
  list(REMOVE_DUPLICATES names)
  list(SORT names)

  set(root "${PROJECT_BINARY_DIR}/generated")
  set(source "${root}/embedded/${name}.cpp")
  file(CONFIGURE OUTPUT "${root}/embedded/file.hpp" CONTENT [=[
#pragma once

#include <string_view>

namespace cukiln::embedded {

struct File {
  std::string_view name;
  std::string_view bytes;
  std::string_view blake2b_256;  ///< of the bytes: 32 bytes
};

}  // namespace cukiln::embedded
]=])
  file(CONFIGURE OUTPUT "${root}/embedded/${name}.hpp" CONTENT [=[
#pragma once

#include <span>

#include "embedded/file.hpp"

namespace cukiln::embedded {

std::span<const File> @name@();

}  // namespace cukiln::embedded
]=] @ONLY)

  # The list travels in a file: it is part of what the output depends on, and may be long.
  list(JOIN names "\n" lines)
  file(CONFIGURE OUTPUT "${root}/embedded/${name}.list" CONTENT "${lines}\n" @ONLY)
  add_custom_command(
    OUTPUT "${source}"
    COMMAND "${CMAKE_COMMAND}" -D "NAME=${name}" -D "BASE=${arg_BASE}"
            -D "LIST=${root}/embedded/${name}.list" -D "OUTPUT=${source}"
            -P "${_cukiln_embed_script}"
    DEPENDS ${files} "${root}/embedded/${name}.list" "${_cukiln_embed_script}"
    COMMENT "Embedding ${name}"
    VERBATIM)
  target_sources(${target} PRIVATE "${source}")
  target_include_directories(${target} PRIVATE "${root}")
endfunction()
