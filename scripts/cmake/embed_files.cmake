# SPDX-License-Identifier: Apache-2.0
# Run by cukiln_embed at build time: cmake -D NAME= -D BASE= -D LIST= -D OUTPUT= -P embed_files.cmake

file(STRINGS "${LIST}" names)
set(arrays "")
set(rows "")
set(index 0)
foreach(name IN LISTS names)
  file(READ "${BASE}/${name}" hex HEX)
  string(LENGTH "${hex}" size)
  math(EXPR size "${size} / 2")
  # A string literal compiles many times faster than a list of numbers. Escapes need no quoting, and
  # one is never followed by a bare digit.
  string(REGEX REPLACE "(................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" hex "${hex}")
  string(REGEX REPLACE "([^\n]+)" "    \"\\1\"" hex "${hex}")
  if(hex STREQUAL "")
    set(hex "    \"\"")
  endif()
  string(APPEND arrays "constexpr char k_${NAME}_${index}[] =\n${hex};\n")
  execute_process(COMMAND b2sum --length=256 "${BASE}/${name}"
    OUTPUT_VARIABLE digest RESULT_VARIABLE failed ERROR_VARIABLE why)
  string(SUBSTRING "${digest}" 0 64 digest)
  if(failed OR NOT digest MATCHES "^[0-9a-f]+$")
    message(FATAL_ERROR "b2sum (GNU coreutils) cannot hash ${BASE}/${name}: ${failed} ${why}")
  endif()
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" digest "${digest}")
  string(APPEND rows "    {\"${name}\", {k_${NAME}_${index}, ${size}}, {\"${digest}\", 32}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE "${OUTPUT}.part" "// Generated from the files named below; not for editing.
#include \"embedded/${NAME}.hpp\"

namespace cukiln::embedded {
namespace {

${arrays}
constexpr File k_${NAME}[] = {
${rows}};

}  // namespace

std::span<const File> ${NAME}() { return k_${NAME}; }

}  // namespace cukiln::embedded
")
file(RENAME "${OUTPUT}.part" "${OUTPUT}")
