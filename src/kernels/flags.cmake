# Kernels: every file under cpu/<set>/ is compiled for that instruction set and called only after run-time detection.
hearth_library(kernels DEPS base tensor LINK m)
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
