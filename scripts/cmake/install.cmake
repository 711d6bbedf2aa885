# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down, and what find_package(cukiln) then finds. Everything is relative to
# the prefix, which may be moved afterwards.
include(CMakePackageConfigHelpers)

install(TARGETS cukiln EXPORT cukilnTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cukiln" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
# The library starts it; nobody calls it by hand.
if(TARGET cukiln-compile-worker)
  install(TARGETS cukiln-compile-worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/cukiln)
endif()
foreach(program cukiln_cli cukilnd)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/cukiln)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/scripts/cmake/cukilnConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/package/cukilnConfig.cmake"
  INSTALL_DESTINATION ${package_folder}
  PATH_VARS CMAKE_INSTALL_LIBEXECDIR)
# 0.x: a minor version may change the interface.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/package/cukilnConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(EXPORT cukilnTargets NAMESPACE cukiln:: DESTINATION ${package_folder})
install(FILES "${PROJECT_BINARY_DIR}/package/cukilnConfig.cmake"
              "${PROJECT_BINARY_DIR}/package/cukilnConfigVersion.cmake"
  DESTINATION ${package_folder})
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR})
