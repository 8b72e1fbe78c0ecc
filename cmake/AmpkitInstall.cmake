# What `cmake --install` puts down, and how find_package(ampkit) finds it.
include(CMakePackageConfigHelpers)

set(AMPKIT_CONFIG_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/ampkit")

# ampkit_install_library(TARGET EXPORT NAME HEADERS_IN FOLDER...): the library,
# its export set, and every header below the folders. A header is public by
# lying there, so the list is the folder. The file set also gives the target
# TARGET_verify_interface_header_sets, which compiles each header on its own.
function(ampkit_install_library target)
  cmake_parse_arguments(ARG "" "EXPORT" "HEADERS_IN" ${ARGN})
  foreach(folder ${ARG_HEADERS_IN})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${folder}/*.h")
    list(APPEND headers ${found})
  endforeach()
  target_sources(${target} PUBLIC FILE_SET HEADERS
                                  BASE_DIRS ${ARG_HEADERS_IN} FILES ${headers})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  install(TARGETS ${target} EXPORT ${ARG_EXPORT} FILE_SET HEADERS)
  install(
    EXPORT ${ARG_EXPORT}
    NAMESPACE ampkit::
    DESTINATION "${AMPKIT_CONFIG_DIR}")
endfunction()

ampkit_install_library(
  ampkit
  EXPORT ampkitTargets
  HEADERS_IN "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include")
if(TARGET zoo)
  ampkit_install_library(
    zoo
    EXPORT ampkitZooTargets
    HEADERS_IN "${PROJECT_SOURCE_DIR}/zoo/include")
endif()
if(TARGET ampkit_app)
  # The program finds LibTorch where it was linked, and a shared libampkit
  # beside itself.
  file(RELATIVE_PATH library_dir "/${CMAKE_INSTALL_BINDIR}"
       "/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(
    ampkit_app PROPERTIES INSTALL_RPATH "$ORIGIN/${library_dir}"
                          INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ampkit_app)
endif()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/ampkitConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/ampkitConfig.cmake"
  INSTALL_DESTINATION "${AMPKIT_CONFIG_DIR}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/ampkitConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ampkitConfig.cmake"
              "${PROJECT_BINARY_DIR}/ampkitConfigVersion.cmake"
        DESTINATION "${AMPKIT_CONFIG_DIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")
