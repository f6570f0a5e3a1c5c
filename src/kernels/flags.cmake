# Kernels: every file under cpu/<set>/ is compiled for that instruction set and called only after run-time detection.
# Sanitized kernels are ten times slower, and nearly all of a test's time is theirs. HEARTH_FAST_KERNELS names the archive
# of a release build; then the rooms above use that, and only the tests that are about kernels (hearth_checked_kernels)
# get sanitized ones: what is common to all sets and the scalar set. The wide sets are generated from the same few sources, take
# minutes to compile with a sanitizer, and are watched by guard pages in the release build; `make test-kernels` sanitizes them.
set(HEARTH_FAST_KERNELS "" CACHE FILEPATH "libh_kernels.a of a build without sanitizers, for builds with them")
if(HEARTH_FAST_KERNELS)
  hearth_library(kernels_checked FROM kernels DEPS base tensor LINK m)
  get_target_property(checked_sources h_kernels_checked SOURCES)
  list(FILTER checked_sources EXCLUDE REGEX "/cpu/(avx2|avx512|neon)/")
  set_target_properties(h_kernels_checked PROPERTIES SOURCES "${checked_sources}")
  add_library(h_kernels STATIC IMPORTED GLOBAL)
  set_target_properties(h_kernels PROPERTIES IMPORTED_LOCATION ${HEARTH_FAST_KERNELS}
    INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}/src INTERFACE_LINK_LIBRARIES "h_base;h_tensor;m")
else()
  hearth_library(kernels DEPS base tensor LINK m)
endif()
function(hearth_checked_kernels)
  if(HEARTH_FAST_KERNELS)
    foreach(target IN LISTS ARGN)
      target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,h_kernels_checked>)
    endforeach()
  endif()
endfunction()
# With sanitizers -O3 takes minutes per file, and speed is not what those builds are for.
set(opt -O3)
if(HEARTH_SANITIZE)
  set(opt -O1)
endif()
file(GLOB avx2 CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/avx2/*.c)
file(GLOB avx512 CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/avx512/*.c)
file(GLOB neon CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/neon/*.c)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${avx2} PROPERTIES COMPILE_FLAGS "${opt} -mavx2 -mfma -mf16c -mbmi2")
  file(GLOB vnni CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/avx2/*_vnni.c)
  set_source_files_properties(${vnni} PROPERTIES
    COMPILE_FLAGS "${opt} -mavx2 -mfma -mf16c -mbmi2 -mavxvnni")
  set_source_files_properties(${avx512} PROPERTIES
    COMPILE_FLAGS "${opt} -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512")
  file(GLOB amx CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/avx512/*_amx.c)
  set_source_files_properties(${amx} PROPERTIES
    COMPILE_FLAGS "${opt} -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512 -mamx-tile -mamx-bf16")
  set_source_files_properties(${neon} PROPERTIES HEADER_FILE_ONLY ON)
else()
  set_source_files_properties(${avx2} ${avx512} PROPERTIES HEADER_FILE_ONLY ON)
  # Plain files must run on every AArch64; *_dotprod.c and *_i8mm.c are called only where those instructions exist.
  set_source_files_properties(${neon} PROPERTIES COMPILE_FLAGS "${opt} -march=armv8-a")
  file(GLOB dotprod CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/neon/*_dotprod.c)
  file(GLOB i8mm CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/neon/*_i8mm.c)
  set_source_files_properties(${dotprod} PROPERTIES COMPILE_FLAGS "${opt} -march=armv8.2-a+dotprod")
  set_source_files_properties(${i8mm} PROPERTIES COMPILE_FLAGS "${opt} -march=armv8.2-a+dotprod+i8mm")
endif()
