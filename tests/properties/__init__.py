"""What holds for every module, whichever it is: generated ones, damaged ones, huge ones, and those that mean harm."""
