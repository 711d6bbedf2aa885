# SPDX-License-Identifier: Apache-2.0
# A libcuda without a GPU, for the tests of cukiln and of its hosts (examples/testing.md).
function(cukiln_fake_driver target)
  add_library(${target} SHARED
    "${PROJECT_SOURCE_DIR}/tests/support/fake_cuda.cpp" "${PROJECT_SOURCE_DIR}/tests/support/fake_cuda_driver.cpp")
  target_link_libraries(${target} PRIVATE cukiln_flags cukiln_sanitize)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
endfunction()
cukiln_fake_driver(cuda_fake)
set_target_properties(cuda_fake PROPERTIES EXPORT_NAME fake_driver)
target_include_directories(cuda_fake INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
add_library(cukiln::fake_driver ALIAS cuda_fake)
