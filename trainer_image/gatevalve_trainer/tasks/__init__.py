"""Task plug-ins: where generated items come from and how a reply is scored."""
