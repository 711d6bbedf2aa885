# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs, and what find_package(cukiln) then finds. All paths are relative to the
# prefix, which may be moved afterwards.
include(CMakePackageConfigHelpers)

# A library's targets are an export of its own: cukilnConfig.cmake takes those that are there.
function(install_library target export)
  install(TARGETS ${target} EXPORT ${export}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_COMPONENT development
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ${export} NAMESPACE cukiln:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cukiln)
endfunction()
# What is not installed with the library alone.
set(fake_driver_header "${PROJECT_SOURCE_DIR}/include/cukiln/fake_cuda.h")
# Where the headers of include/cukiln/nvfp4 were before 0.4.
set(forwarding_headers nvfp4.h nvfp4.hpp nvfp4_moe.hpp sampling.hpp tensor_view.hpp torch.h)
list(TRANSFORM forwarding_headers PREPEND "${PROJECT_SOURCE_DIR}/include/cukiln/" OUTPUT_VARIABLE forwarding_files)
file(GLOB core_files CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/cukiln/*.h" "${PROJECT_SOURCE_DIR}/include/cukiln/*.hpp")
list(REMOVE_ITEM core_files ${forwarding_files} "${fake_driver_header}")
install_library(cukiln cukilnTargets)
install(FILES ${core_files} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cukiln)
if(TARGET cukiln_nvfp4)
  install_library(cukiln_nvfp4 cukiln_nvfp4Targets)
  install(FILES ${forwarding_files} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cukiln)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cukiln/nvfp4" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cukiln
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
endif()
if(CUKILN_FAKE_DRIVER)  # never found as libcuda.so.1: its name and folder are its own
  install(TARGETS cuda_fake EXPORT cukiln_testingTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/cukiln)
  install(EXPORT cukiln_testingTargets NAMESPACE cukiln:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cukiln)
  install(FILES "${fake_driver_header}" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cukiln)
endif()
if(TARGET cukiln_nvrtc)  # opened by their paths or preloaded: they have no version of their own
  install(TARGETS cukiln_nvrtc cukiln_nvjitlink LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# Started by the library that it is built with, never by hand: not in PATH, and beside those of other versions.
if(TARGET cukiln-compile-worker)
  install(TARGETS cukiln-compile-worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/cukiln/${CUKILN_ABI_VERSION})
endif()
foreach(program cukiln_cli cukilnd)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# What is installed, without tests and examples.
add_custom_target(product)
foreach(target cukiln cukiln_nvrtc cukiln_nvjitlink cukiln_nvfp4 cukiln-compile-worker cukiln_cli cukilnd cuda_fake)
  if(TARGET ${target})
    add_dependencies(product ${target})
  endif()
endforeach()
if(TARGET cukiln_cli)
  install(FILES "${PROJECT_BINARY_DIR}/man/cukiln.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  set(completions "${PROJECT_BINARY_DIR}/completions")
  install(FILES "${completions}/cukiln.bash" RENAME cukiln OPTIONAL
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES "${completions}/cukiln.zsh" RENAME _cukiln OPTIONAL
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES "${completions}/cukiln.fish" OPTIONAL
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES "${PROJECT_SOURCE_DIR}/cache/manifests/manifest.schema.json"
    DESTINATION ${CMAKE_INSTALL_DATADIR}/cukiln)
endif()
if(TARGET cukilnd)
  install(FILES "${PROJECT_SOURCE_DIR}/src/cli/man/cukilnd.8" DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
  # A unit names programs by their paths, so these are right for the prefix that was configured only.
  set(systemd "${PROJECT_SOURCE_DIR}/scripts/systemd")
  file(GLOB units CONFIGURE_DEPENDS RELATIVE "${systemd}" "${systemd}/*.service" "${systemd}/*.socket")
  foreach(unit IN LISTS units)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${systemd}/${unit}")
    file(READ "${systemd}/${unit}" text)
    string(REPLACE "/usr/bin/cukilnd" "${CMAKE_INSTALL_FULL_BINDIR}/cukilnd" text "${text}")
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/systemd/${unit}" CONTENT "${text}" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/systemd/${unit}" DESTINATION lib/systemd/user)
  endforeach()
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/cukiln)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/scripts/cmake/cukilnConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/package/cukilnConfig.cmake"
  INSTALL_DESTINATION ${package_folder}
  PATH_VARS CMAKE_INSTALL_LIBEXECDIR)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/package/cukilnConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
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
foreach(library cukiln cukiln_nvfp4)
  if(TARGET ${library})
    configure_file("${PROJECT_SOURCE_DIR}/scripts/cmake/${library}.pc.in"
      "${PROJECT_BINARY_DIR}/package/${library}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/package/${library}.pc" DESTINATION ${pkgconfig_folder})
  endif()
endforeach()

# Documents, examples, and what monitoring loads, in the folders of the sources: then their links hold.
file(GLOB documents CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/*.md")
file(GLOB_RECURSE nested_documents CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
  "${PROJECT_SOURCE_DIR}/cache/*.md" "${PROJECT_SOURCE_DIR}/examples/*" "${PROJECT_SOURCE_DIR}/kernels_src/*.md"
  "${PROJECT_SOURCE_DIR}/scripts/observability/*" "${PROJECT_SOURCE_DIR}/src/*.md" "${PROJECT_SOURCE_DIR}/tests/*.md")
list(FILTER nested_documents EXCLUDE REGEX "/__pycache__/|^examples/containers/prefix/")
foreach(document IN LISTS documents nested_documents ITEMS LICENSE)
  cmake_path(GET document PARENT_PATH folder)
  install(FILES "${PROJECT_SOURCE_DIR}/${document}" DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
