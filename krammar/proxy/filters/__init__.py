"""The filters that come with krammar, each in a module of its own. Importing the package loads none of them."""
