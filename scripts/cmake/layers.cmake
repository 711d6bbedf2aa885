# A layer is one folder of src, compiled once as objects. `cukiln_link_layers` gives a target the objects
# of the named layers and of everything they may include.
#
#   cukiln_layer(store DEPENDS base key wire LIBRARIES SQLite::SQLite3)
function(cukiln_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBRARIES;SOURCES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(NOT sources AND NOT arg_SOURCES)  # a layer of headers only
    file(TOUCH "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp")
    set(sources "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp")
  endif()
  if(NOT sources AND NOT arg_SOURCES)  # headers alone are a layer too; a library wants one source
    set(sources "${CMAKE_CURRENT_BINARY_DIR}/headers_only.cpp")
    file(CONFIGURE OUTPUT "${sources}" CONTENT "")
  endif()
  add_library(cukiln_${name} OBJECT ${sources} ${arg_SOURCES})
  target_link_libraries(cukiln_${name} PRIVATE cukiln_flags cukiln_sanitize
    fmt::fmt-header-only cukiln_xxhash Threads::Threads ${arg_LIBRARIES})
  set_target_properties(cukiln_${name} PROPERTIES
    CUKILN_DEPENDS "${arg_DEPENDS}" CUKILN_LIBRARIES "${arg_LIBRARIES}")
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
  foreach(layer IN LISTS all)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:cukiln_${layer}>)
    get_target_property(libraries cukiln_${layer} CUKILN_LIBRARIES)
    if(libraries)
      target_link_libraries(${target} PRIVATE ${libraries})
    endif()
  endforeach()
  # What has headers only is needed by the build and not by whoever links the installed library.
  foreach(library IN ITEMS cukiln_flags cukiln_sanitize fmt::fmt-header-only cukiln_xxhash)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
