"""Growth over months: real daemons through very many events, and whether anything of them still grows."""
