
print("size 12 kB of x")
