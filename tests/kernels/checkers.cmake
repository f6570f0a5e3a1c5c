# Kernel checkers: each tests/kernels/check_*.c is a plain program, run once per instruction set (see check.h).
file(GLOB checkers CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/check_*.c)
add_library(check_support STATIC ${CMAKE_CURRENT_LIST_DIR}/check.c)
target_include_directories(check_support PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(check_support PUBLIC h_kernels h_tensor h_base m)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(check_masks scalar avx2 avx2,avxvnni avx512 amxbf16) # no kernel asks for avx512bf16
else()
  set(check_masks scalar neon dotprod i8mm)
endif()
if(CMAKE_CROSSCOMPILING OR HEARTH_SANITIZE)
  set(check_args --quick)
endif()
add_custom_target(kernel_checkers)
foreach(file IN LISTS checkers)
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE check_support)
  hearth_checked_kernels(${name})
  add_dependencies(kernel_checkers ${name})
  set(masks ${check_masks})
  if(CMAKE_CROSSCOMPILING) # emulation is slow: the scalar kernels are the same C, checked by themselves in the other build
    list(REMOVE_ITEM masks scalar)
    if(NOT name STREQUAL "check_matmul")
      set(masks neon) # only matmul has more than one kind of NEON kernel
    endif()
  endif()
  if(name STREQUAL "check_codec")
    set(masks scalar) # tests no table
  endif()
  if(name STREQUAL "check_halves")
    set(masks amxbf16)
  elseif(name STREQUAL "check_attn")
    list(REMOVE_ITEM masks amxbf16)
  elseif(NOT name STREQUAL "check_matmul")
    list(REMOVE_ITEM masks avx2,avxvnni amxbf16) # only products and attention have dot products of bytes
  endif()
  if(HEARTH_SANITIZE AND HEARTH_FAST_KERNELS) # only the scalar set is sanitized
    list(FILTER masks INCLUDE REGEX "^scalar$")
  elseif(HEARTH_SANITIZE AND name STREQUAL "check_matmul") # the tiles' set has the kernels of avx512, too
    list(REMOVE_ITEM masks avx512)
  endif()
  foreach(mask IN LISTS masks)
    add_test(NAME ${name}.${mask} COMMAND ${name} --cpu ${mask} ${check_args})
    set_tests_properties(${name}.${mask} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
  endforeach()
endforeach()

# The same checkers for 64-bit Arm: a cross build inside this build, its tests run under qemu.
if(NOT CMAKE_CROSSCOMPILING AND CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_C_COMPILER_ID STREQUAL "GNU"
   AND NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  find_program(AARCH64_CC aarch64-linux-gnu-gcc)
  find_program(QEMU_AARCH64 qemu-aarch64)
  if(AARCH64_CC AND QEMU_AARCH64)
    set(neon_dir ${CMAKE_BINARY_DIR}/neon)
    add_test(NAME neon COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DBINARY=${neon_dir}
      -P ${CMAKE_CURRENT_LIST_DIR}/neon.cmake)
    set_tests_properties(neon PROPERTIES TIMEOUT 1800)
  else()
    add_test(NAME neon COMMAND ${CMAKE_COMMAND} -E echo "skipped: aarch64-linux-gnu-gcc or qemu-aarch64 not found")
    set_tests_properties(neon PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
  endif()
endif()
