package onlyonce
