"""The party's side of Model I: columns go between peers."""
