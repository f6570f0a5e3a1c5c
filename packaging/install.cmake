# What is installed beside the program and the library: manual pages and completion, which the program writes, and the files
# of systemd, which name the place of the program.
set(HEARTH_UNIT_DIR lib/systemd CACHE STRING "directory of systemd's units of the system; relative: below the prefix")
set(HEARTH_USER_PROGRAM ${CMAKE_INSTALL_FULL_BINDIR}/hearth)
set(packaging ${CMAKE_SOURCE_DIR}/packaging)
set(units ${CMAKE_BINARY_DIR}/systemd)
set(shells ${CMAKE_BINARY_DIR}/completion)
configure_file(${packaging}/systemd/hearth.service.in ${units}/system/hearth.service @ONLY)
configure_file(${packaging}/systemd/hearth-user.service.in ${units}/user/hearth.service @ONLY)
configure_file(${packaging}/systemd/hearth.socket ${units}/system/hearth.socket COPYONLY)
add_custom_command(TARGET hearth POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man ${shells}
  COMMAND $<TARGET_FILE:hearth> man --write ${CMAKE_BINARY_DIR}/man
  COMMAND $<TARGET_FILE:hearth> completion bash > ${shells}/hearth
  COMMAND $<TARGET_FILE:hearth> completion zsh > ${shells}/_hearth
  COMMAND $<TARGET_FILE:hearth> completion fish > ${shells}/hearth.fish)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(FILES ${shells}/hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${shells}/_hearth DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${shells}/hearth.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${units}/system/hearth.service ${units}/system/hearth.socket DESTINATION ${HEARTH_UNIT_DIR}/system)
install(FILES ${units}/user/hearth.service DESTINATION lib/systemd/user)
install(FILES ${packaging}/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME hearth.conf)
