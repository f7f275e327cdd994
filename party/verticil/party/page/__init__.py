"""A local page for the people of a site, to read and not to act: ``verticil party ui``. Only this machine reaches it."""
