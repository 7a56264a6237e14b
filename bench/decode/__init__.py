"""What each drafter buys, by kind of text, temperature and streams at once; and `auto` beside them."""
