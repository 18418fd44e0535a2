# The installed package comes with the embed tests.
