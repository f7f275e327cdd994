"""Who somebody is: keys, certificates and signatures."""
