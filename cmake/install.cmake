# The installed package: libraries, header, command, the model's files, CMake config and pkg-config file. Nothing in it
# names an absolute path, so the tree may be moved (tests/embed does).
include(CMakePackageConfigHelpers)
set(QUERN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/quern)

install(TARGETS quern_static quern_shared EXPORT quern_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/include/quern/quern.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quern)
install(EXPORT quern_targets NAMESPACE quern:: FILE quern-targets.cmake DESTINATION ${QUERN_PACKAGE_DIR})
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/quern-config.cmake
  "# find_package(quern): quern::shared and quern::static.\ninclude(\"\${CMAKE_CURRENT_LIST_DIR}/quern-targets.cmake\")\n")
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/quern-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/quern-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/quern-config-version.cmake
  DESTINATION ${QUERN_PACKAGE_DIR})

# From the .pc file's own place, so that the tree may be moved; a folder that is absolute stays where it is.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(QUERN_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(QUERN_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
else()
  file(RELATIVE_PATH QUERN_PC_UP /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  set(QUERN_PC_PREFIX "\${pcfiledir}/${QUERN_PC_UP}")
  set(QUERN_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(QUERN_PC_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(QUERN_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/cmake/quern.pc.in ${CMAKE_CURRENT_BINARY_DIR}/quern.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/quern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(QUERN_BUILD_TOOLS)
  install(TARGETS quern_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/kernel_templates DESTINATION ${CMAKE_INSTALL_DATADIR}/quern)
  # bench --vs: the peers. tables.py is for this tree's documents.
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/tools/bench/ DESTINATION ${CMAKE_INSTALL_DATADIR}/quern/bench
    FILES_MATCHING PATTERN "*.py" PATTERN tables.py EXCLUDE PATTERN __pycache__ EXCLUDE)
endif()
