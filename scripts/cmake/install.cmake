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
if(TARGET cukiln_cli)
  install(FILES "${PROJECT_BINARY_DIR}/man/cukiln.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
endif()
if(TARGET cukilnd)
  install(FILES "${PROJECT_SOURCE_DIR}/src/cli/man/cukilnd.8" DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
endif()

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

# For builds without CMake. A static cukiln names what it is linked with; relative, as all of the package.
set(pkgconfig_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}/${pkgconfig_folder}" OUTPUT_VARIABLE pkgconfig_to_prefix)
set(pkgconfig_requires "")
set(pkgconfig_libraries "")
set(pkgconfig_definitions "")
if(NOT BUILD_SHARED_LIBS)
  set(pkgconfig_requires "sqlite3 libzstd libsodium")
  set(pkgconfig_libraries "-pthread -ldl -lstdc++ -lm")
  set(pkgconfig_definitions "-DCUKILN_STATIC")
endif()
configure_file("${PROJECT_SOURCE_DIR}/scripts/cmake/cukiln.pc.in"
  "${PROJECT_BINARY_DIR}/package/cukiln.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/cukiln.pc" DESTINATION ${pkgconfig_folder})

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR})
