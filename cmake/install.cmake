# What `cmake --install` puts where: libraries, headers, heed.pc, the CMake package, the program and its pages.
install(TARGETS heed_shared EXPORT heed_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS heed_static EXPORT heed_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/heed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(HEED_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
foreach(kind shared static)
    install(EXPORT heed_${kind} NAMESPACE heed:: DESTINATION ${HEED_PACKAGE_DIR})
endforeach()
configure_package_config_file(cmake/heedConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/heedConfig.cmake
                              INSTALL_DESTINATION ${HEED_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heedConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/heedConfigVersion.cmake
        DESTINATION ${HEED_PACKAGE_DIR})

# heed.pc finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH HEED_PREFIX_FROM_PC /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
set(HEED_CAIRO_LINK)
if(HEED_PICTURES)
    set(HEED_CAIRO_LINK -lcairo)
endif()
set(HEED_DNNL_PC)
if(HEED_DNNL_LINK)
    set(HEED_DNNL_PC -ldnnl)
endif()
configure_file(cmake/heed.pc.in ${CMAKE_CURRENT_BINARY_DIR}/heed.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heed.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET heed)
    install(TARGETS heed RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/docs/heed.1)
    install(FILES docs/heed.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/completions/heed.bash)
    install(FILES completions/heed.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME heed)
endif()
