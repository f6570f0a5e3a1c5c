# The checker of the CUDA kernels (docs/cuda.md). Without a device it checks the twins and says what it skipped.
if(HEARTH_CUDA_BUILD)
  add_executable(check_cuda ${CMAKE_CURRENT_LIST_DIR}/check_cuda.c)
  target_link_libraries(check_cuda PRIVATE check_support h_cuda)
  add_test(NAME check_cuda COMMAND check_cuda)
  set_tests_properties(check_cuda PROPERTIES TIMEOUT 600)
endif()
