# CUDA kernels: C headers over .cu files, a library of their own, so that nothing else needs nvcc.
if(HEARTH_CUDA_BUILD)
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*.cu)
  add_library(h_cuda STATIC ${cuda_sources})
  target_include_directories(h_cuda PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(h_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${HEARTH_CUDA_FLAGS}>")
  target_link_libraries(h_cuda PUBLIC h_kernels h_base)
endif()
