# The web UI as one C file (web/build.cmake). auto: with it where npm is; on: or else the build fails; off: without it.
set(HEARTH_UI auto CACHE STRING "build the web UI: auto, on or off")
set(web ${CMAKE_SOURCE_DIR}/web)
file(GLOB_RECURSE web_inputs CONFIGURE_DEPENDS ${web}/src/*)
set(ui_assets ${CMAKE_CURRENT_BINARY_DIR}/ui_assets.c)
add_custom_command(OUTPUT ${ui_assets}
  COMMAND ${CMAKE_COMMAND} -DWEB=${web} -DOUT=${ui_assets} -DMODE=${HEARTH_UI} -P ${web}/build.cmake
  DEPENDS ${web_inputs} ${web}/package.json ${web}/package-lock.json ${web}/build.mjs ${web}/build.cmake ${web}/tsconfig.json
  COMMENT "The web UI" VERBATIM)
target_sources(h_server PRIVATE ${ui_assets})
