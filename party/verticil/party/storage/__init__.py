"""A party's state on its disk: the database, the site secret, what it remembers of each study."""
