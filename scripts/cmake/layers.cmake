# SPDX-License-Identifier: Apache-2.0
# A layer is one folder of src, compiled once as objects. `cukiln_link_layers` gives a target the objects
# of the named layers and of everything they may include.
#
#   cukiln_layer(store DEPENDS base key wire LIBRARIES SQLite::SQLite3)
#
# ADDON: the layer has a `register_<ADDON>` for the core (core/loader/addons.hpp). With IN_LIBRARY it is linked wherever
# the loader is.
function(cukiln_layer name)
  cmake_parse_arguments(arg "IN_LIBRARY" "ADDON" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(NOT sources)  # headers alone are a layer too; a library wants one source
    set(sources "${CMAKE_CURRENT_BINARY_DIR}/headers_only.cpp")
    file(CONFIGURE OUTPUT "${sources}" CONTENT "")
  endif()
  add_library(cukiln_${name} OBJECT ${sources})
  target_link_libraries(cukiln_${name} PRIVATE cukiln_flags cukiln_sanitize
    cukiln_fmt cukiln_xxhash Threads::Threads ${arg_LIBRARIES})
  set_target_properties(cukiln_${name} PROPERTIES
    CUKILN_DEPENDS "${arg_DEPENDS}" CUKILN_LIBRARIES "${arg_LIBRARIES}" CUKILN_ADDON "${arg_ADDON}")
  if(arg_IN_LIBRARY)
    set_property(GLOBAL APPEND PROPERTY CUKILN_LIBRARY_ADDONS ${name})
  endif()
endfunction()

function(cukiln_layer_closure out)
  set(pending ${ARGN})
  set(all "")
  while(pending)
    list(POP_FRONT pending layer)
    if(NOT layer IN_LIST all)
      list(APPEND all ${layer})
      get_target_property(depends cukiln_${layer} CUKILN_DEPENDS)
      if(depends)
        list(APPEND pending ${depends})
      endif()
    endif()
  endwhile()
  set(${out} ${all} PARENT_SCOPE)
endfunction()

function(cukiln_link_layers target)
  cukiln_layer_closure(all ${ARGN})
  if(loader IN_LIST all)
    get_property(addons GLOBAL PROPERTY CUKILN_LIBRARY_ADDONS)
    cukiln_layer_closure(all ${all} ${addons})
    cukiln_registry(registry ${all})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${registry}>)
  endif()
  cukiln_take_layers(${target} ${all})
endfunction()

# `addons()` with the add-ons among these layers, as objects.
function(cukiln_registry out)
  set(names "")
  foreach(layer IN LISTS ARGN)
    get_target_property(addon cukiln_${layer} CUKILN_ADDON)
    if(addon)
      list(APPEND names ${addon})
    endif()
  endforeach()
  list(SORT names)
  list(JOIN names _ suffix)
  set(registry cukiln_addons_${suffix})
  if(NOT TARGET ${registry})
    set(declarations "")
    set(calls "")
    foreach(name IN LISTS names)
      string(APPEND declarations "void register_${name}(Registry& registry);\n")
      string(APPEND calls "    register_${name}(all);\n")
    endforeach()
    set(source "${PROJECT_BINARY_DIR}/generated/${registry}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT [=[
#include "core/loader/addons.hpp"

namespace cukiln {

@declarations@
const Registry& addons() {
  static const Registry registry = [] {
    Registry all;
@calls@    return all;
  }();
  return registry;
}

}  // namespace cukiln
]=] @ONLY)
    add_library(${registry} OBJECT "${source}")
    target_link_libraries(${registry} PRIVATE cukiln_flags cukiln_sanitize cukiln_fmt cukiln_xxhash)
  endif()
  set(${out} ${registry} PARENT_SCOPE)
endfunction()

# The objects of the named layers and no others: what they include besides is in a library that the target links.
function(cukiln_take_layers target)
  set(all ${ARGN})
  set(build_only cukiln_flags cukiln_sanitize ${CUKILN_HEADER_ONLY})
  set(all_libraries ${build_only} Threads::Threads ${CMAKE_DL_LIBS})
  foreach(layer IN LISTS all)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:cukiln_${layer}>)
    get_target_property(libraries cukiln_${layer} CUKILN_LIBRARIES)
    if(libraries)
      list(APPEND all_libraries ${libraries})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES all_libraries)
  foreach(library IN LISTS all_libraries)
    if(library IN_LIST build_only)
      set(library $<BUILD_INTERFACE:${library}>)
    endif()
    target_link_libraries(${target} PRIVATE ${library})
  endforeach()
endfunction()
