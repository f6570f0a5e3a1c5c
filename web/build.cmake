# Builds the pages of the web UI and writes the C file that holds them. Run by CMake:
#   cmake -DWEB=web -DOUT=ui_assets.c -DMODE=auto|on|off -P web/build.cmake
#
# web/dist is made again when a file that goes into it has changed, so a second build directory and a second build find
# it ready; a source package may bring it along, and then npm is not needed. Without npm, or where its registry cannot be
# reached, "auto" goes on without pages: the program then says on its page how to get them. A page that does not build is
# an error in every mode but "off".
cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE inputs RELATIVE ${WEB} ${WEB}/src/*)
list(APPEND inputs package.json package-lock.json build.mjs tsconfig.json)
list(SORT inputs)
set(all "")
foreach(f IN LISTS inputs)
  file(SHA256 ${WEB}/${f} h)
  string(APPEND all "${f} ${h}\n")
endforeach()
string(SHA256 wanted "${all}")
file(SHA256 ${WEB}/package-lock.json lock)

function(installed out)
  set(${out} FALSE PARENT_SCOPE)
  if(EXISTS ${WEB}/node_modules/.hearth-lock)
    file(READ ${WEB}/node_modules/.hearth-lock have)
    if(have STREQUAL lock)
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets why to a sentence when there are no packages.
macro(install_packages)
  installed(there)
  find_program(NPM npm)
  if(NOT there AND NOT NPM)
    set(why "npm is not installed")
  elseif(NOT there)
    message(STATUS "web: npm ci")
    execute_process(COMMAND ${NPM} ci --no-audit --no-fund WORKING_DIRECTORY ${WEB} RESULT_VARIABLE rc
      OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 300)
    if(rc EQUAL 0)
      file(WRITE ${WEB}/node_modules/.hearth-lock "${lock}")
    else()
      string(REGEX REPLACE "\n+$" "" said "${said}")
      set(why "npm ci failed:\n${said}")
    endif()
  endif()
endmacro()

set(why "")
set(have "")
if(EXISTS ${WEB}/dist/inputs.sha256)
  file(READ ${WEB}/dist/inputs.sha256 have)
endif()
if(NOT MODE STREQUAL off)
  file(LOCK ${WEB} DIRECTORY GUARD PROCESS TIMEOUT 600) # of another build directory
  if(EXISTS ${WEB}/dist/inputs.sha256)
    file(READ ${WEB}/dist/inputs.sha256 have)
  endif()
  if(NOT have STREQUAL wanted)
    install_packages()
    find_program(NODE node)
    if(why STREQUAL "" AND NOT NODE)
      set(why "node is not installed")
    endif()
    if(why STREQUAL "")
      execute_process(COMMAND ${NODE} build.mjs WORKING_DIRECTORY ${WEB} RESULT_VARIABLE rc OUTPUT_VARIABLE said ERROR_VARIABLE said)
      if(NOT rc EQUAL 0)
        message(FATAL_ERROR "web: the pages do not build:\n${said}")
      endif()
      file(WRITE ${WEB}/dist/inputs.sha256 "${wanted}")
    elseif(MODE STREQUAL on)
      message(FATAL_ERROR "web: ${why}")
    else()
      message(WARNING "web: built without the pages: ${why}")
    endif()
  endif()
endif()

# dist/assets.txt: "NAME TYPE SHA256 ENCODING" per line.
set(lines "")
if(NOT MODE STREQUAL off AND why STREQUAL "")
  file(STRINGS ${WEB}/dist/assets.txt lines)
endif()
set(data "")
set(table "")
set(n 0)
foreach(line IN LISTS lines)
  string(REPLACE " " ";" part "${line}")
  list(GET part 0 name)
  list(GET part 1 type)
  list(GET part 2 digest)
  list(GET part 3 encoding)
  string(APPEND data "INCLUDE(${n}, \"${WEB}/dist/${name}\")\n")
  string(APPEND table "    { \"${name}\", \"${type}\", \"${digest}\", ${encoding}, ui_file_${n}, ui_end_${n} },\n")
  math(EXPR n "${n} + 1")
endforeach()
set(text "/* Made by web/build.cmake. */
#include \"server/ops/ui_assets.h\"

#include <stdbool.h>

#define INCLUDE(n, path)                                                                                            \\
    __asm__(\".section .rodata\\n.balign 16\\nui_file_\" #n \":\\n.incbin \\\"\" path \"\\\"\\nui_end_\" #n \":\\n.byte 0\\n.previous\\n\"); \\
    extern const unsigned char ui_file_##n[], ui_end_##n[];

${data}
const ui_asset ui_assets[] = {
${table}    { 0 },
};
")


file(WRITE ${OUT} "${text}")

